"""What every row over training is told by: the clocks of its checkpoint, and tables that have them."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pandas as pd

from infoflow.results import END, KEYS, Column, TableSchema
from infoflow.training import TrainConfig, learning_rate

SUFFIX = "_over_training"
"""What names of tables over checkpoints end with."""
_NOT_MEASURED = (f"findings{SUFFIX}",)
NOT_THE_SAME = -1

CLOCKS = (
    Column(
        name="tokens",
        dtype="float64",
        unit="tokens",
        description="tokens that the loss looked at until then; NaN: unknown",
    ),
    Column(name="progress", dtype="float64", unit="", description="share of the training's updates: 0 to 1"),
    Column(
        name="lr_share",
        dtype="float64",
        unit="",
        description="sum of the learning rates until then as a share of all; NaN: unknown",
    ),
    Column(
        name="same_as",
        dtype="int64",
        unit="updates",
        description="an earlier checkpoint with the very same weights, whose rows these are; -1: none",
    ),
)
"""The columns that say where in its training a checkpoint stands, beside `update` of `KEYS`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Where in its training a checkpoint stands."""

    update: int
    tokens: float = math.nan  # that the loss looked at
    progress: float = math.nan
    lr_share: float = math.nan
    same_as: int = NOT_THE_SAME

    def columns(self) -> dict[str, Any]:
        """Its values in `CLOCKS`."""
        return {column.name: getattr(self, column.name) for column in CLOCKS}


def over_training(schema: TableSchema) -> TableSchema:
    """The schema of a table of a model's measure with a row for each checkpoint: named after it, keys in front.

    Its rows have the number of updates in `update`, at the last checkpoint too.
    """
    description = f"{schema.description} At each checkpoint of the training."
    return replace(schema.with_keys(*KEYS, *CLOCKS), name=f"{schema.name}{SUFFIX}", description=description)


def measured_over_training(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables of a run that `over_training` describes, by the names of the measures' tables."""
    named = {name.removesuffix(SUFFIX): name for name in tables if name.endswith(SUFFIX) and name not in _NOT_MEASURED}
    return {name: tables[source] for name, source in named.items()}


def of_whole_course(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """`KEYS` of a model's whole course, from a row of one of its checkpoints."""
    return {**{column.name: row[column.name] for column in KEYS}, "update": END, "trained": True}


def learning_rate_shares(config: TrainConfig, steps: Sequence[int]) -> list[float]:
    r"""\(\sum_{s \le t} \eta_s / \sum_s \eta_s\) at each step t, of the learning rates η that `config` asks for."""
    sums = [0.0, *accumulate(learning_rate(update, config) for update in range(1, config.updates + 1))]
    return [sums[step] / sums[-1] for step in steps]
