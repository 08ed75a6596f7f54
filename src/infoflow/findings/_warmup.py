"""What claims read of two trainings that differ in their warm-up."""

import numpy as np

from infoflow.results import Spec

from ._model_group import Absent
from ._table import Reading, SeedRows, Table

FACTOR = 1.5
"""How much later a stage must come to count as later: the square root of a warm-up's growth by 4 would be 2."""


def unigram_stage(objective: Spec, compared: str = "warm-up") -> Reading:
    """Where the divergence from unigrams is least: doublings of updates, and of the sum of learning rates, by which it
    comes later with the longer warm-up; then by how many doublings of updates checkpoints lie apart there.

    `compared="seed"`: in the next seed with the same warm-up, later or earlier; by its updates alone, with 0 for the
    sum, which says something of another warm-up only.
    """
    table = Table("stages_by_warmup", objective, needs=("measure", "gap", "replicates"))
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
