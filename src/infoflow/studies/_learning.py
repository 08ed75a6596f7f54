"""How the training loss fell: the log of each model, thinned to a curve."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from infoflow.results import KEYS, Column, TableSchema
from infoflow.training import read_log

_POINTS = 60

LEARNING_CURVES = TableSchema(
    name="learning_curves",
    version=1,
    description="Training loss over time, each value the mean over the updates since the one before. Measured under "
    "dropout and the objective's own noise, so it lies above the loss of the finished model.",
    columns=(
        *KEYS,
        Column(name="step", dtype="int64", unit="updates", description="last optimiser step of the mean"),
        Column(name="source_tokens", dtype="int64", unit="tokens", description="source tokens read until then"),
        Column(name="value", dtype="float64", unit="nats per token", description="mean training loss"),
    ),
)


def learning_curve(log: Path) -> pd.DataFrame:
    """step, source_tokens and value of at most 60 stretches of the log, shorter where the loss falls fast."""
    if not log.exists():
        return pd.DataFrame(columns=["step", "source_tokens", "value"])
    lines = [line for line in read_log(log) if "loss" in line]
    ends = np.unique(np.geomspace(1, len(lines), _POINTS).round().astype(int)) if lines else np.array([], dtype=int)
    return pd.DataFrame([_mean(lines[start:end]) for start, end in pairwise([0, *ends.tolist()])])


def _mean(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    last = lines[-1]
    value = float(np.mean([line["loss"] for line in lines]))
    return {"step": last["update"], "source_tokens": last["source_tokens"], "value": value}
