"""Readings of two trainings that differ in their warm-up."""

import numpy as np

from infoflow.findings._model_group import Absent
from infoflow.findings._table import Reading, SeedRows, Table
from infoflow.results import Spec

from ..measures import STAGES_BY_WARMUP

FACTOR = 1.5
"""How much later a stage must occur to count as later: the square root of a fourfold warm-up would be 2."""


def unigram_stage(objective: Spec, compared: str = "warm-up") -> Reading:
    """How much later the divergence from unigrams is least with the longer warm-up.

    The columns are doublings of updates, doublings of the sum of learning rates, and the spacing of checkpoints there
    in doublings of updates.

    `compared="seed"`: the difference to the next seed with the same warm-up in either direction, by its updates alone;
    the sum, which only describes another warm-up, is 0.
    """
    table = Table(STAGES_BY_WARMUP.name, objective, needs=("measure", "gap", "replicates"))
    return table.where(compared=compared, order=1).reduce(_grown, signed=compared == "warm-up")


def _grown(rows: SeedRows, signed: bool) -> np.ndarray:
    ordered = SeedRows(rows.frame.sort_values("measure", ascending=False), rows.number)  # updates, then rates
    if list(ordered.frame["measure"]) != ["updates", "rates"]:
        raise Absent("stages_by_warmup must hold updates and rates once for each seed")
    numbers = ordered.numbers
    if not np.isfinite(numbers[0]).all():
        raise Absent("the divergence from unigrams has no minimum between the first checkpoint and the last")
    if (gap := float(ordered.frame["gap"].max())) > np.log2(FACTOR):
        raise Absent(
            f"checkpoints around the minimum lie {gap:.2f} doublings of updates apart, and no time is more exact: "
            f"{np.log2(FACTOR):.2f} or less are needed, a schedule with more steps"
        )
    grown = numbers if signed else np.abs(numbers) * [1, 0]
    return np.column_stack([grown, np.full(len(grown), gap)])
