"""The clock columns of rows over training, and the tables with them."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pandas as pd

from infoflow.results import END, KEYS, SUFFIX, Column, TableSchema

from ._config import TrainConfig
from ._schedule import learning_rate

_NOT_MEASURED = (f"findings{SUFFIX}",)
NOT_THE_SAME = -1

CLOCKS = (
    Column(
        name="tokens",
        dtype="float64",
        unit="tokens",
        description="supervised tokens so far; NaN: unknown",
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
"""The columns of a checkpoint's position in its training, in addition to `update` of `KEYS`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """A checkpoint's position in its training."""

    update: int
    tokens: float = math.nan  # tokens used in the loss
    progress: float = math.nan
    lr_share: float = math.nan
    same_as: int = NOT_THE_SAME

    def columns(self) -> dict[str, Any]:
        """Its values in `CLOCKS`."""
        return {column.name: getattr(self, column.name) for column in CLOCKS}


def over_training(schema: TableSchema) -> TableSchema:
    """The schema of a model measure's table with a row for each checkpoint: renamed, keys first.

    Its rows have the number of updates in `update`, also for the last checkpoint.
    """
    description = f"{schema.description} At each checkpoint of the training."
    return schema.named(schema.at_checkpoints, description, (*KEYS, *CLOCKS, *schema.columns))


def measured_over_training(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables of a run that have the schema of `over_training`, by the names of the measures' tables."""
    named = {name.removesuffix(SUFFIX): name for name in tables if name.endswith(SUFFIX) and name not in _NOT_MEASURED}
    return {name: tables[source] for name, source in named.items()}


def of_whole_course(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """`KEYS` for a model's whole training, from a row of one of its checkpoints."""
    return {**{column.name: row[column.name] for column in KEYS}, "update": END, "trained": True}


def learning_rate_shares(config: TrainConfig, steps: Sequence[int]) -> list[float]:
    r"""\(\sum_{s \le t} \eta_s / \sum_s \eta_s\) at each step t, for the learning rates η of `config`."""
    sums = [0.0, *accumulate(learning_rate(update, config) for update in range(1, config.updates + 1))]
    return [sums[step] / sums[-1] for step in steps]
