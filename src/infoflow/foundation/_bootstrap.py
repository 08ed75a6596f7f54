"""Error bars: a bootstrap over blocks of sentences, with the same blocks and weights for every model and measure.

A sentence is assigned to one of `NUM_BLOCKS` blocks by the hash of its id, which its text determines. A streaming
measure keeps its sums per block, so its state is bounded, merges exactly, and yields any number of bootstrap replicates
afterwards. Since blocks and weights are shared, two models measured on the same sentences have *paired* replicates: the
interval of a difference follows from the replicates' differences.
"""

import heapq
import math
from functools import cache
from typing import NamedTuple

import numpy as np

from ._random import hash64_array, stream

NUM_BLOCKS = 64
"""Number of sentence blocks behind every interval."""
NUM_REPLICATES = 200
"""Number of bootstrap replicates in tables."""


class Interval(NamedTuple):
    """A 95% interval."""

    low: float
    high: float

    def reaching(self, value: float, step: float) -> "Interval":
        """Widen the interval of a value read off a grid to at least one step each way; NaN ends move there too.

        >>> Interval(0.9, 1.3).reaching(1.0, 0.25)
        Interval(low=0.75, high=1.3)
        """
        known = [end for end in self if not math.isnan(end)]
        return Interval(min([*known, value - step]), max([*known, value + step]))


def block_of(sentence_ids: np.ndarray) -> np.ndarray:
    """The bootstrap block, 0..63, of each sentence id."""
    return (hash64_array(("bootstrap-block",), np.asarray(sentence_ids)) % np.uint64(NUM_BLOCKS)).astype(np.int64)


def dealt(keys: np.ndarray, num: int) -> np.ndarray:
    """Assign a part, 0..num−1, to each row; rows with equal keys share one.

    Keys are assigned, in order of first occurrence, to the part with the fewest rows: if all keys differ, to each part
    in turn.

    >>> dealt(np.array([7, 3, 7, 5]), 2).tolist()
    [0, 1, 0, 1]
    """
    _, first, place, sizes = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    rows = [(0, part) for part in range(num)]
    part_of = np.empty(len(first), dtype=np.int64)
    for key in first.argsort().tolist():
        held, part = heapq.heappop(rows)
        part_of[key] = part
        heapq.heappush(rows, (held + int(sizes[key]), part))
    return part_of[place]


@cache
def replicate_weights(num: int = NUM_REPLICATES, seed: int = 0) -> np.ndarray:
    """Multinomial weights (num, 64): row r counts how often each block is drawn in replicate r; rows sum to 64."""
    random = stream("bootstrap-weights", seed)
    weights = random.multinomial(NUM_BLOCKS, np.full(NUM_BLOCKS, 1 / NUM_BLOCKS), num) * 1.0
    weights.setflags(write=False)  # all callers share the array
    return weights


def interval(replicates: np.ndarray, level: float = 0.95) -> Interval:
    """Percentile interval of any bootstrap draws; NaN is ignored, and all NaN gives (NaN, NaN).

    It is too short for replicates over blocks of sentences, which need `block_interval`.
    """
    values = np.asarray(replicates, dtype=np.float64)
    values = values[np.isfinite(values)]
    if values.size == 0:
        return Interval(float("nan"), float("nan"))
    tail = (1 - level) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))
