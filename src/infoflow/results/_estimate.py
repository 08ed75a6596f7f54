"""The numbers in every row of a measure's table."""

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
        baseline: The control.
        count: Number of observations.
        scale: Range of the statistic, see `block_interval`, which computes its interval.
        units: Number of independent units behind the replicates, if smaller than the number of blocks with data.
        ends: The interval, if the replicates are draws of another kind.
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
    """The columns of one row for a ratio of sums per bootstrap block (both (64,)); NaN if nothing counts."""
    weights, total = _weights(), float(denominator.sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.float64(numerator.sum()) / denominator.sum()
        replicates = (weights @ numerator) / (weights @ denominator)
        effects = (numerator - value * denominator) / total
    units = int(np.count_nonzero(denominator))
    ends = block_interval(float(value), effects, units=units, scale=scale, count=total)
    return estimate(float(value), replicates, baseline, total, ends=ends)


_SCALES: dict[str, Scale] = {
    **dict.fromkeys(("accuracy", "macro_f1", "micro_f1", "entity_f1", "exact_match", "f1", "rougeL", "auc"), "share"),
    **dict.fromkeys(("p1", "mrr", "ndcg", "recall", "uuas", "root", "preferred", "agreement", "jaccard"), "share"),
    **dict.fromkeys(("pearson", "spearman", "matthews", "later_by_utility", "later_by_likelihood"), "correlation"),
    "r2": "explained",
    **dict.fromkeys(("pwcca", "svcca", "cca", "cka", "cka_minibatch"), "share"),
    "cka_debiased": "explained",
    "rsa": "correlation",
    "procrustes": "positive",
    **dict.fromkeys(("average_similarity", "self_similarity", "shuffled_self_similarity"), "correlation"),
    **dict.fromkeys(("intra_sentence_similarity", "unrelated_intra_sentence_similarity"), "correlation"),
    **dict.fromkeys(("rogue_dimensions", "explainable_variance", "shuffled_explainable_variance"), "share"),
    "intrinsic_dimension": "positive",
}
_SHARES = ("share", "fraction", "probability", "share of facts", "share of examples")
_WRITTEN = ("bleu", "chrf")


def scale_of(metric: str, unit: str = "score") -> Scale:
    """The scale of a metric; for names that no table knows, the scale that follows from the unit of the values.

    Args:
        metric: Name of the metric.
        unit: Unit of the column `value`. Scores of tasks are shares unless they are correlations.
    """
    if metric in _WRITTEN:
        return "percent" if "percent" in unit else "share"
    return _SCALES.get(metric, "share" if unit in ("score", *_SHARES) else "any")


def linear_replicates(value: float, without_block: np.ndarray) -> np.ndarray:
    r"""Bootstrap replicates of a statistic that repeated sentences would bias, from its leave-one-block-out values.

    $$ v_r = v + \sum_b (w_{rb} - 1)(v - v_{(b)}) $$

    w are the weights of `replicate_weights` and v_(b) is the statistic without block b, (64,). To first order in the
    weights these equal the plain bootstrap's replicates. But a plain replicate contains every sentence repeatedly or
    not at all, which raises mutual information and PWCCA as scarce data would, and differently in each replicate.

    Source: [@efron1982], the jackknife as an approximation to the bootstrap.
    """
    return value + (_weights() - 1) @ (value - without_block)


@cache
def _weights() -> np.ndarray:
    return replicate_weights()
