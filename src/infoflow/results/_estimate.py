"""The numbers that every row of a measure's table carries."""

import math
from typing import Any

import numpy as np

from infoflow.foundation import interval, replicate_weights


def estimate(
    value: float, replicates: np.ndarray, baseline: float, count: float, centre: bool = False
) -> dict[str, Any]:
    """The columns of `estimate_columns` for one row.

    Args:
        replicates: Bootstrap replicates of `value`, from the first rows of `replicate_weights()`.
        centre: Move the replicates so that their mean is `value`. For statistics that duplicated rows bias
            (mutual information, PWCCA): a bootstrap repeats that bias, and only the spread is of use.
    """
    replicates = np.asarray(replicates, dtype=np.float64)
    if centre and np.isfinite(replicates).any():
        replicates = replicates - np.nanmean(replicates) + value
    low, high = (math.nan, math.nan) if math.isnan(value) else interval(replicates)
    return {
        "value": float(value),
        "low": low,
        "high": high,
        "baseline": float(baseline),
        "count": int(count),
        "replicates": replicates.tolist(),
    }


def ratio_estimate(numerator: np.ndarray, denominator: np.ndarray, baseline: float) -> dict[str, Any]:
    """The columns of one row for a ratio of sums, given per bootstrap block (both (64,)); NaN where nothing counts."""
    weights = replicate_weights()
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.float64(numerator.sum()) / denominator.sum()
        replicates = (weights @ numerator) / (weights @ denominator)
    return estimate(float(value), replicates, baseline, float(denominator.sum()))
