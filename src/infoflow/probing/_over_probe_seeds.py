"""The columns of a row that summarises several trainings of one probe."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from infoflow.foundation import (
    Interval,
    Scale,
    block_effects,
    block_interval,
    difference_interval,
    interval_over_seeds,
    replicate_weights,
)
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
    scale: Scale = "any",
    independent: float | None = None,
) -> dict[str, Any]:
    """Columns of `estimate_columns` and `SEED_COLUMNS`: the mean over seeds, and its interval over seeds and sentences.

    The interval is that of `interval_over_seeds`; if every answer of every seed is right, it is the interval that this
    number of right answers allows.

    Args:
        values: The statistic of each training.
        replicates: Its bootstrap replicates over sentences, paired across trainings.
        baseline: The control's value.
        count: Number of observations.
        scale: Range of the statistic.
        independent: Number of independent observations, if not all are independent.
    """
    replicates = np.where(np.isfinite(replicates), replicates, np.nan)
    value, sd, ends = math.nan, math.nan, Interval(math.nan, math.nan)
    if np.isfinite(values).all():
        value = float(values.mean())
        sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
        usable = replicates[:, np.isfinite(replicates).all(axis=0)]
        agree = count if independent is None else independent
        own = [
            block_interval(one, block_effects(one, drawn), scale=scale, count=agree)
            for one, drawn in zip(values.tolist(), replicates, strict=True)
        ]
        units = [(seed,) for seed in range(len(values))]
        ends = own[0] if len(own) == 1 else interval_over_seeds(units, values, usable, own, scale)
    mean = estimate(value, replicates.mean(axis=0), baseline, count, ends=ends)
    return mean | {"seed_sd": sd, "seeds": len(values)}


def with_still_sides(
    row: dict[str, Any], one: Mapping[str, Any], other: Mapping[str, Any], moved: Sequence[np.ndarray]
) -> dict[str, Any]:
    """The columns of a difference of two shares, with an interval that respects a side that no draw moves.

    If all answers of one side are right, resamples say nothing about it; the difference then gets at least the interval
    that both sides' own intervals allow, see `difference_interval`.

    Args:
        row: The difference, with an interval from its replicates.
        one: The columns of the first share.
        other: The columns of the second.
        moved: Replicates (seeds, replicates) of each.
    """
    low, high = row["low"], row["high"]
    if any(_still(drawn) for drawn in moved):
        ends = (Interval(side["low"], side["high"]) for side in (one, other))
        apart = difference_interval(one["value"], next(ends), other["value"], next(ends))
        low, high = float(np.fmin(low, apart.low)), float(np.fmax(high, apart.high))
    return row | {"low": max(low, -1.0), "high": min(high, 1.0)}


def _still(drawn: np.ndarray) -> bool:
    """Whether no usable draw moves the number of any seed."""
    usable = drawn[:, np.isfinite(drawn).all(axis=0)]
    return bool(usable.size) and bool((usable == usable[:, :1]).all())


def block_sums(costs: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Sums (64, ...) of numbers (examples, ...) over the examples of each bootstrap block."""
    sums = np.zeros((64, *costs.shape[1:]))
    np.add.at(sums, blocks, costs)
    return sums


def replicated(sums: np.ndarray) -> np.ndarray:
    """Bootstrap replicates (replicates, ...) of sums over blocks (64, ...)."""
    return np.tensordot(replicate_weights(), sums, axes=1)
