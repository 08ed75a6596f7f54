"""Claims about alignment: representations:Z-3 and Z-4."""

from collections.abc import Iterable, Mapping

import numpy as np

from infoflow.findings._finding import Condition, Control, Curves, claim, exceeds
from infoflow.findings._model_group import MASKED, TRANSLATION
from infoflow.findings._sources import ENCODER_SPACES
from infoflow.findings._table import Reading, Table, one_number

from ..measures import ALIGNMENT

UNITS = {
    "retrieval forward": "share of words",
    "retrieval backward": "share of words",
    "rsa": "rank correlation",
    "pwcca": "PWCCA",
}

METRICS = ("mse", *UNITS)


def controls(metrics: Iterable[str], states: str) -> tuple[Control, ...]:
    """Controls that replace the aligned encoder by encoders that were trained differently."""
    kinds = {"trained on shuffled links": "shuffled", "trained on the regulariser only": "regulariser only"}
    return tuple(Control(name=name, reads=pairs(metrics, states, kind)) for name, kind in kinds.items())


def pairs(metrics: Iterable[str], states: str, aligned: str = "aligned") -> dict[str, Reading]:
    """Scores under `{metric}, aligned` and `{metric}, unaligned`; `aligned` names the encoder."""
    kinds = {"aligned": aligned, "unaligned": "unaligned"}
    return {f"{metric}, {name}": alignment(kind, metric, states) for metric in metrics for name, kind in kinds.items()}


def alignment(kind: str, metric: str, states: str) -> Reading:
    """Score on held-out words of one kind of the masked LM's encoder (aligned, unaligned, ...)."""
    return Table(ALIGNMENT.name, MASKED).where(kind=kind, metric=metric, states=states).reduce(one_number)


@claim(
    "representations:Z-3",
    "Alignment brings a masked LM's space closer to a translation encoder's than any linear map of it does.",
    source=ENCODER_SPACES,
    published="directions only: error falls; retrieval, RSA and PWCCA rise",
    statistic="aligned encoder against the unaligned one under its best linear map, on held-out words: lower squared "
    "error; higher retrieval in both directions, RSA and PWCCA to the translation encoder",
    reads=pairs(METRICS, "mapped"),
    controls=controls(METRICS, "mapped"),
    learned=(MASKED, TRANSLATION),
)
def z3(curves: Curves) -> list[Condition]:
    """Conditions on the scores of held-out words after the map."""
    falls = exceeds("fall of the squared error", -gain(curves, "mse"), 0, "squared units")
    rises = [exceeds(f"rise of {metric}", gain(curves, metric), 0, unit) for metric, unit in UNITS.items()]
    return [falls, *rises]


_Z4_METRICS = ("average similarity gap", "self-similarity gap")


@claim(
    "representations:Z-4",
    "An aligned masked LM resembles the translation encoder in how similar its words are, layer by layer.",
    source=ENCODER_SPACES,
    cause="Encoders that start with the same weights are already alike: for an encoder from another run the gap "
    "shrank (.069 to .036, one seed). Longer alignment did not help.",
    examined="alignment",
    published="direction only: the curves of average and self-similarity approach the translation encoder's",
    statistic="mean over layers of the absolute difference from the translation encoder, in average similarity and in "
    "self-similarity: smaller for the aligned masked LM than for the unaligned one",
    reads=pairs(_Z4_METRICS, "encoder"),
    controls=controls(_Z4_METRICS, "encoder"),
    learned=(MASKED, TRANSLATION),
)
def z4(curves: Curves) -> list[Condition]:
    """Condition on the encoders' similarity curves over layers 0..L, before the map."""
    narrowed = np.concatenate([-gain(curves, metric) for metric in _Z4_METRICS], axis=1)
    labels = [metric.removesuffix(" gap") for metric in _Z4_METRICS]
    return [exceeds("how much alignment narrows the gap to the translation encoder", narrowed, 0, "cosine", labels)]


def gain(curves: Mapping[str, np.ndarray], metric: str) -> np.ndarray:
    """How much higher the aligned encoder scores, (N, 1)."""
    return curves[f"{metric}, aligned"] - curves[f"{metric}, unaligned"]
