"""Error bars: a bootstrap over blocks of sentences, the same blocks and weights for every model and measure.

A sentence falls into one of `NUM_BLOCKS` blocks by the hash of its id, which its text decides. A streaming measure
keeps its sums per block, so its state is bounded, merges exactly, and any number of bootstrap replicates follows from
it afterwards. Since blocks and weights are shared, two models measured on the same sentences have *paired* replicates:
the interval of a difference follows from the replicates' differences.
"""

import math
from typing import NamedTuple

import numpy as np

from ._random import hash64_array, stream

NUM_BLOCKS = 64
"""Blocks of sentences that every interval is computed from."""
NUM_REPLICATES = 200
"""Replicates of the bootstrap that tables keep."""


class Interval(NamedTuple):
    """A 95% interval."""

    low: float
    high: float

    def reaching(self, value: float, step: float) -> "Interval":
        """The interval of a value that is read off a grid: at least a step to either side; NaN ends lie there.

        >>> Interval(0.9, 1.3).reaching(1.0, 0.25)
        Interval(low=0.75, high=1.3)
        """
        known = [end for end in self if not math.isnan(end)]
        return Interval(min([*known, value - step]), max([*known, value + step]))


def block_of(sentence_ids: np.ndarray) -> np.ndarray:
    """The bootstrap block, 0..63, of each sentence id."""
    return (hash64_array(("bootstrap-block",), np.asarray(sentence_ids)) % np.uint64(NUM_BLOCKS)).astype(np.int64)


def replicate_weights(num: int = NUM_REPLICATES, seed: int = 0) -> np.ndarray:
    """Multinomial weights (num, 64): row r says how often each block is drawn in replicate r; rows sum to 64."""
    return stream("bootstrap-weights", seed).multinomial(NUM_BLOCKS, np.full(NUM_BLOCKS, 1 / NUM_BLOCKS), num) * 1.0


def interval(replicates: np.ndarray, level: float = 0.95) -> Interval:
    """Percentile interval of bootstrap draws of any kind; NaN is left out, and all NaN gives (NaN, NaN).

    Of replicates over blocks of sentences it is too short; `block_interval` is the one for those.
    """
    values = np.asarray(replicates, dtype=np.float64)
    values = values[np.isfinite(values)]
    if values.size == 0:
        return Interval(float("nan"), float("nan"))
    tail = (1 - level) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))
