"""Intervals from disjoint parts of the examples."""

from functools import cache
from typing import Any

import numpy as np

from infoflow.foundation import NUM_REPLICATES, block_interval, stream
from infoflow.results import estimate


def part_estimate(sums_P: np.ndarray, shares_P: np.ndarray, baseline: float, count: int) -> dict[str, Any]:
    r"""The columns of `estimate_columns` for a sum $v = \sum_p v_p$ over parts with shares n_p of the items.

    $$ v_r = v + \sqrt{\tfrac{P}{P-1}} \left(\frac{\sum_p w_{rp} v_p}{\sum_p w_{rp} n_p} - v\right) $$

    w is how often each part is drawn in replicate r; the root corrects the bootstrap of P values, which is too narrow
    by its inverse. One part gives no interval. The draws are the same for every model, so that models evaluated on the
    same sentences have paired replicates.
    """
    value, parts = float(sums_P.sum()), len(sums_P)
    if parts == 1:
        return {**estimate(value, np.full(NUM_REPLICATES, np.nan), baseline, count), "replicates": []}
    weights = _draws(parts)
    resampled = (weights @ sums_P) / (weights @ shares_P)
    ends = block_interval(value, sums_P - value * shares_P / shares_P.sum(), units=parts)
    replicates = value + np.sqrt(parts / (parts - 1)) * (resampled - value)
    return estimate(value, replicates, baseline, count, ends=ends)


@cache
def _draws(parts: int) -> np.ndarray:
    return stream("allocation-parts", parts).multinomial(parts, np.full(parts, 1 / parts), NUM_REPLICATES) * 1.0
