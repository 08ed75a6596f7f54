"""The numbers of a row that several trainings of one probe give together."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from infoflow.foundation import Interval, interval_over_seeds, replicate_weights
from infoflow.results import Column, estimate

SEED_COLUMNS = (
    Column(
        name="seed_sd",
        dtype="float64",
        unit="as value",
        description="standard deviation of the value over the probe's seeds; NaN for one seed",
    ),
    Column(name="seeds", dtype="int64", unit="", description="trainings of the probe, which the value is the mean of"),
)


def seed_estimate(
    values: Float[np.ndarray, " seed"],
    replicates: Float[np.ndarray, "seed replicate"],
    baseline: float,
    count: float,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> dict[str, Any]:
    """Columns of `estimate_columns` and `SEED_COLUMNS`: the mean over seeds, its interval over seeds and sentences.

    Args:
        values: The statistic of each training.
        replicates: Its bootstrap replicates over sentences, paired over trainings.
        baseline: Its control.
        count: Observations behind it.
        bounds: What it cannot lie outside of; the interval does not either.
    """
    replicates = np.where(np.isfinite(replicates), replicates, np.nan)
    value, sd, ends = math.nan, math.nan, Interval(math.nan, math.nan)
    if np.isfinite(values).all():
        value = float(values.mean())
        sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
        usable = replicates[:, np.isfinite(replicates).all(axis=0)]
        found = interval_over_seeds([(seed,) for seed in range(len(values))], values, usable)
        ends = Interval(max(found.low, bounds[0]), min(found.high, bounds[1]))
    mean = estimate(value, replicates.mean(axis=0), baseline, count, ends=ends)
    return mean | {"seed_sd": sd, "seeds": len(values)}


def block_sums(costs: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Sums (64, ...) over the examples of each bootstrap block of numbers (examples, ...)."""
    sums = np.zeros((64, *costs.shape[1:]))
    np.add.at(sums, blocks, costs)
    return sums


def replicated(sums: np.ndarray) -> np.ndarray:
    """Bootstrap replicates (replicates, ...) of sums over blocks (64, ...)."""
    return np.tensordot(replicate_weights(), sums, axes=1)
