"""Readings of claims about alignment: scores of the encoder after and before alignment."""

from collections.abc import Iterable, Mapping

import numpy as np

from infoflow.findings._finding import Control
from infoflow.findings._model_group import MASKED
from infoflow.findings._table import Reading, Table, one_number

from ..measures import ALIGNMENT


def pairs(metrics: Iterable[str], states: str, aligned: str = "aligned") -> dict[str, Reading]:
    """Scores under `{metric}, aligned` and `{metric}, unaligned`; `aligned` names the encoder."""
    kinds = {"aligned": aligned, "unaligned": "unaligned"}
    return {f"{metric}, {name}": alignment(kind, metric, states) for metric in metrics for name, kind in kinds.items()}


def controls(metrics: Iterable[str], states: str) -> tuple[Control, ...]:
    """Encoders that were trained differently, in place of the aligned one."""
    kinds = {"trained on shuffled links": "shuffled", "trained on the regulariser only": "regulariser only"}
    return tuple(Control(name=name, reads=pairs(metrics, states, kind)) for name, kind in kinds.items())


def gain(curves: Mapping[str, np.ndarray], metric: str) -> np.ndarray:
    """How much higher the aligned encoder scores, (N, 1)."""
    return curves[f"{metric}, aligned"] - curves[f"{metric}, unaligned"]


def alignment(kind: str, metric: str, states: str) -> Reading:
    """Score of the masked LM's encoder on held-out words, aligned or of another kind."""
    return Table(ALIGNMENT.name, MASKED).where(kind=kind, metric=metric, states=states).reduce(one_number)
