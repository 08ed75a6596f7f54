"""The numbers that every row of a measure's table carries."""

import math
from functools import cache
from typing import Any

import numpy as np

from infoflow.foundation import Interval, Scale, block_effects, block_interval, replicate_weights


def estimate(
    value: float,
    replicates: np.ndarray,
    baseline: float,
    count: float,
    *,
    scale: Scale = "any",
    units: int | None = None,
    ends: Interval | None = None,
) -> dict[str, Any]:
    """The columns of `estimate_columns` for one row.

    Args:
        value: The statistic.
        replicates: Its bootstrap replicates, in the order of the rows of `replicate_weights()`.
        baseline: Its control.
        count: Observations behind it.
        scale: What it can be, see `block_interval`, which gives its interval.
        units: How many independent units the replicates come from, where these are fewer than the blocks with data.
        ends: Its interval, where the replicates are draws of another kind.
    """
    if ends is None:
        ends = block_interval(value, block_effects(value, replicates), units=units, scale=scale, count=count)
    return {
        "value": float(value),
        "low": ends.low,
        "high": ends.high,
        "baseline": float(baseline),
        "count": int(count),
        "replicates": np.asarray(replicates, dtype=np.float64).tolist(),
    }


def ratio_estimate(
    numerator: np.ndarray, denominator: np.ndarray, baseline: float, scale: Scale = "any"
) -> dict[str, Any]:
    """The columns of one row for a ratio of sums, given per bootstrap block (both (64,)); NaN where nothing counts."""
    weights, total = _weights(), float(denominator.sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.float64(numerator.sum()) / denominator.sum()
        replicates = (weights @ numerator) / (weights @ denominator)
        effects = (numerator - value * denominator) / total
    units = int(np.count_nonzero(denominator))
    ends = block_interval(float(value), effects, units=units, scale=scale, count=total)
    return estimate(float(value), replicates, baseline, total, ends=ends)


_LOWEST = {"pearson": -1.0, "spearman": -1.0, "matthews": -1.0, "r2": -math.inf}


def score_bounds(metric: str) -> tuple[float, float]:
    """What a task's metric can be: at least 0 but for correlations, at most 1. Intervals over seeds are cut there."""
    return _LOWEST.get(metric, 0.0), 1.0


def linear_replicates(value: float, without_block: np.ndarray) -> np.ndarray:
    r"""Bootstrap replicates of a statistic that repeated sentences would bias, from its values without each block.

    $$ v_r = v + \sum_b (w_{rb} - 1)(v - v_{(b)}) $$

    w are the weights of `replicate_weights` and v_(b) the statistic without block b, (64,). To first order in the
    weights these are the plain bootstrap's replicates. But a plain replicate holds every sentence twice or not at
    all, which raises mutual information and PWCCA by as much as few data would, and differently in each replicate.

    Source: [@efron1982], the jackknife as an approximation to the bootstrap.
    """
    return value + (_weights() - 1) @ (value - without_block)


@cache
def _weights() -> np.ndarray:
    return replicate_weights()
