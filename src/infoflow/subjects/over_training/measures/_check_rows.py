"""Results of the checks of a series of checkpoints."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float

from infoflow.results import Column, TableSchema
from infoflow.training import NOT_THE_SAME

from ._places import StoredFile
from ._weighing import Weight

Level = Literal["note", "warning", "error"]

CHECKPOINT_CHECKS = TableSchema(
    name="checkpoint_checks",
    version=1,
    description="Anomalies of the checkpoints of a training. A checkpoint with an error is left out of the "
    "other tables "
    "unless requested.",
    over_training=True,
    columns=(
        Column(name="name", dtype="string", unit="", description="of the checkpoint: its folder or revision"),
        Column(
            name="check",
            dtype="string",
            unit="",
            description="K1 equal weights, K2 equal shards, K3 far from both neighbours, K4 nearer to the start than "
            "the one before, K5 no descendant of step 0, K6 loss beside its decreasing fit, K7 no finite or only equal "
            "numbers, K8 another configuration or tokenizer, K9 missing or unexpected tensors, K10 precision, "
            "K11 another step than its name says, K12 missing, or norms that jump",
        ),
        Column(name="level", dtype="string", unit="", description="note, warning or error"),
        Column(name="value", dtype="float64", unit="as the check", description="measured value; NaN: no number"),
        Column(
            name="limit",
            dtype="float64",
            unit="as the check",
            description="limit from which it is an anomaly; NaN: none",
        ),
        Column(
            name="other_step",
            dtype="int64",
            unit="updates",
            description="update of the other checkpoint that the message is about; -1: none",
        ),
        Column(name="message", dtype="string", unit="", description="for people"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckRow:
    """One problem of one checkpoint."""

    name: str
    update: int
    check: str
    level: Level
    message: str
    value: float = math.nan
    limit: float = math.nan
    other_step: int = NOT_THE_SAME


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WeighedCheckpoint:
    """A checkpoint as input of the checks; arrays shared by a series must not be changed."""

    name: str
    update: int
    progress: float = math.nan
    named: int | None = None  # step in its name
    saved_at: int | None = None  # step recorded by its training
    by_hand: bool = False
    files: tuple[StoredFile, ...] = ()
    weight: Weight | None = None  # None: its files cannot be read
    fault: str = ""  # why its files or their content do not form a model
    sketch: Float[np.ndarray, " drawn"] = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    loss: float = math.nan  # on the same sentences at each checkpoint, nats per token
    loss_error: float = math.nan  # its standard error


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SeriesChecks:
    """Results of all checks of a series."""

    rows: tuple[CheckRow, ...]
    same_as: dict[str, int]  # checkpoints with the weights of an earlier one: its update

    @property
    def suspects(self) -> tuple[str, ...]:
        """Names of checkpoints with an error."""
        return tuple(dict.fromkeys(row.name for row in self.rows if row.level == "error"))


def row(one: WeighedCheckpoint, check: str, level: Level, message: str, value: float = math.nan,
        limit: float = math.nan, other: WeighedCheckpoint | None = None) -> CheckRow:  # fmt: skip
    return CheckRow(
        name=one.name,
        update=one.update,
        check=check,
        level=level,
        message=message,
        value=value,
        limit=limit,
        other_step=NOT_THE_SAME if other is None else other.update,
    )


def in_order(series: Sequence[WeighedCheckpoint]) -> list[WeighedCheckpoint]:
    return sorted(series, key=lambda one: (one.update, one.name))


def without(series: Sequence[WeighedCheckpoint], rows: Sequence[CheckRow]) -> list[WeighedCheckpoint]:
    """Checkpoints without a reported error."""
    bad = {row.name for row in rows if row.level == "error"}
    return [one for one in series if one.name not in bad]
