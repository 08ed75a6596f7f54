"""The numbers that every row of a measure's table carries."""

import math
from functools import cache
from typing import Any

import numpy as np

from infoflow.foundation import interval, replicate_weights


def estimate(value: float, replicates: np.ndarray, baseline: float, count: float) -> dict[str, Any]:
    """The columns of `estimate_columns` for one row; `replicates` follow the rows of `replicate_weights()`."""
    low, high = (math.nan, math.nan) if math.isnan(value) else interval(replicates)
    return {
        "value": float(value),
        "low": low,
        "high": high,
        "baseline": float(baseline),
        "count": int(count),
        "replicates": np.asarray(replicates, dtype=np.float64).tolist(),
    }


def ratio_estimate(numerator: np.ndarray, denominator: np.ndarray, baseline: float) -> dict[str, Any]:
    """The columns of one row for a ratio of sums, given per bootstrap block (both (64,)); NaN where nothing counts."""
    weights = _weights()
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.float64(numerator.sum()) / denominator.sum()
        replicates = (weights @ numerator) / (weights @ denominator)
    return estimate(float(value), replicates, baseline, float(denominator.sum()))


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
