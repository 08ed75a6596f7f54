"""Keyed random streams, the bootstrap over blocks of sentences, and the ranges that intervals respect."""

import hashlib
import heapq
import math
from collections.abc import Sequence
from functools import cache
from operator import index
from typing import Literal, NamedTuple, SupportsIndex

import numpy as np
from numpy.random.bit_generator import ISeedSequence

# Counter-based random streams: a number depends only on its key, never on the order of draws.
Key = SupportsIndex | str  # a NumPy integer and a plain one of equal value are equal keys

# Odd constants of splitmix64 (Steele, Lea and Flood 2014).
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _digest(key: Sequence[Key], size: int) -> bytes:
    parts = "\x1f".join([f"str:{part}" if isinstance(part, str) else f"int:{index(part)}" for part in key])
    return hashlib.blake2b(parts.encode(), digest_size=size).digest()


def hash64(*key: Key) -> int:
    """A 64-bit hash of the key, the same in every process and on every machine."""
    return int.from_bytes(_digest(key, 8), "little")


class _PhiloxKey(ISeedSequence):
    """Passes Philox its key; `Philox(key=...)` also reads entropy from the system and takes three times as long."""

    def __init__(self, digest: bytes) -> None:
        self._words = np.frombuffer(digest, dtype="<u8")

    def generate_state(self, n_words: int, dtype: object = np.uint64) -> np.ndarray:
        return self._words


def stream(*key: Key) -> np.random.Generator:
    """A NumPy generator whose whole sequence is a function of `key`.

    Use one stream per purpose and index, for example ``stream("masking", seed, epoch, sentence_id)``, so that the draw
    does not depend on the batch, the process and the order of calls.
    """
    return np.random.Generator(np.random.Philox(_PhiloxKey(_digest(key, 16))))


def hash64_array(key: Sequence[Key], *columns: np.ndarray) -> np.ndarray:
    """Hash integer columns element by element into uint64, keyed by `key` (vectorised `hash64`).

    Each column is folded in by one round of splitmix64, so the result is a function of (key, row) only.
    """
    state = np.full(np.broadcast_shapes(*(np.shape(column) for column in columns)), hash64(*key), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            state = _splitmix(state ^ _splitmix(np.asarray(column).astype(np.int64).view(np.uint64)))
    return state


def _splitmix(values: np.ndarray) -> np.ndarray:
    z = values + _GAMMA
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


# Error bars: a bootstrap over blocks of sentences, with the same blocks and weights for every model and measure.
#
# A sentence is assigned to one of `NUM_BLOCKS` blocks by the hash of its id, which its text determines. A streaming
# measure keeps its sums per block, so its state is bounded, merges exactly, and yields any number of bootstrap
# replicates afterwards. Since blocks and weights are shared, two models measured on the same sentences have *paired*
# replicates: the interval of a difference follows from the replicates' differences.

NUM_BLOCKS = 64
"""Number of sentence blocks behind every interval."""
NUM_REPLICATES = 200
"""Number of bootstrap replicates in tables."""


class Interval(NamedTuple):
    low: float
    high: float

    def reaching(self, value: float, step: float) -> "Interval":
        """Widen the interval of a value read off a grid to at least one step each way; a NaN end becomes one step.

        >>> Interval(0.9, 1.3).reaching(1.0, 0.25)
        Interval(low=0.75, high=1.3)
        """
        known = [end for end in self if not math.isnan(end)]
        return Interval(min([*known, value - step]), max([*known, value + step]))


def block_of(sentence_ids: np.ndarray) -> np.ndarray:
    """The bootstrap block, 0..63, of each sentence id."""
    return (hash64_array(("bootstrap-block",), np.asarray(sentence_ids)) % np.uint64(NUM_BLOCKS)).astype(np.int64)


def block_sums(values: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Sums (64, ...) of numbers (example, ...) over the examples of each bootstrap block, float64."""
    sums = np.zeros((NUM_BLOCKS, *values.shape[1:]))
    np.add.at(sums, blocks, values)
    return sums


def dealt(keys: np.ndarray, num: int) -> np.ndarray:
    """Assign a part, 0..num−1, to each row; rows with equal keys get the same part.

    Each key, in order of first occurrence, goes to the part with the fewest rows. Keys that all differ are therefore
    assigned to the parts in turn.

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
    """Percentile interval of any bootstrap draws; NaN draws are ignored, and if all are NaN the result is (NaN, NaN).

    The interval is too narrow for replicates over blocks of sentences; use `block_interval` for these.
    """
    values = np.asarray(replicates, dtype=np.float64)
    values = values[np.isfinite(values)]
    if values.size == 0:
        return Interval(float("nan"), float("nan"))
    tail = (1 - level) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))


# The range of a statistic, and the single rule by which intervals respect it.
Scale = Literal["any", "positive", "share", "percent", "correlation", "explained"] | tuple[float, float]
"""Range of a statistic: any number, at least 0, from 0 to 1, from 0 to 100, from -1 to 1, at most 1, or its bounds."""

_NORMAL = 1.959964  # normal quantile of a 95% interval
_BOUNDS: dict[Scale, tuple[float, float]] = {
    "any": (-math.inf, math.inf),
    "positive": (0.0, math.inf),
    "share": (0.0, 1.0),
    "percent": (0.0, 100.0),
    "correlation": (-1.0, 1.0),
    "explained": (-math.inf, 1.0),
}


def bounds_of(scale: Scale) -> tuple[float, float]:
    return scale if isinstance(scale, tuple) else _BOUNDS[scale]


def bounded_interval(value: float, half: float, scale: Scale, *, agreeing: float = 0.0) -> Interval:
    r"""The interval of a statistic with plain interval `value` ± `half`, inside the bounds of its scale.

    Between two bounds a, b it is Wilson's interval of the share $p = (v - a) / (b - a)$, transformed back: its ends
    solve

    $$ (p - q)^2 = \tau\, q (1 - q), \qquad \tau = \frac{h^2}{(v - a)(b - v)} $$

    so that its width matches `half` in the middle, and it extends inwards from a bound if observations nearly agree.
    Near a bound, a plain interval would exceed the bounds or have no width, and would cover the truth too rarely. With
    a single bound, the interval is cut at the bound.

    Args:
        value: The statistic.
        half: Half the width of the plain interval, over sentences, seeds, or both.
        scale: Range of the statistic.
        agreeing: $\tau$ if `half` is 0 or the value lies at a bound: $t^2 / n$ for n observations that agree.

    Source: [@wilson1927].
    """
    least, most = bounds_of(scale)
    if not (math.isfinite(value) and math.isfinite(half)):
        return Interval(math.nan, math.nan)
    if math.isinf(least) or math.isinf(most):
        return Interval(max(value - half, min(value, least)), min(value + half, max(value, most)))
    size = most - least
    share = (value - least) / size
    room = max(share * (1 - share), 0.0)
    trust = (half / size) ** 2 / room if room > 0 and half > 0 else agreeing
    if math.isinf(trust):
        return Interval(least, most)
    middle = (share + trust / 2) / (1 + trust)
    reach = math.sqrt(trust * room + trust**2 / 4) / (1 + trust)
    # Rounding may move a value one ulp beyond a bound, and the interval's end one ulp inside it.
    return Interval(
        max(min(least + size * (middle - reach), value), min(value, least)),
        min(max(least + size * (middle + reach), value), max(value, most)),
    )


def scale_of_difference(one: Scale, other: Scale) -> Scale:
    """The range of the difference of two statistics: from −1 to 1 for two shares."""
    (least, most), (lowest, highest) = bounds_of(one), bounds_of(other)
    ends = (least - highest, most - lowest)
    return ends if all(map(math.isfinite, ends)) else "any"


def at_least_apart(ends: Interval, one: tuple[float, Interval], other: tuple[float, Interval]) -> Interval:
    r"""Widen the interval of a difference $v - w$ to at least Newcombe's, from both intervals as if independent.

    $$ \left[ (v - w) - \sqrt{(v - l_v)^2 + (u_w - w)^2},\; (v - w) + \sqrt{(u_v - v)^2 + (w - l_w)^2} \right] $$

    It lies inside the range of the difference if both intervals lie inside theirs. Its width is positive even if no
    resample changes the difference, for example because a model answers everything right.

    Source: [@newcombe1998].
    """
    (v, of_v), (w, of_w) = one, other
    down, up = math.hypot(v - of_v.low, of_w.high - w), math.hypot(of_v.high - v, w - of_w.low)
    return Interval(float(np.fmin(ends.low, v - w - down)), float(np.fmax(ends.high, v - w + up)))


def symmetric_interval(value: float, replicates: np.ndarray, scale: Scale = "any") -> Interval:
    r"""The interval of a statistic that noise biases in one direction, such as a correlation of two noisy profiles.

    $$ v \pm \max(v - q_{.025},\; q_{.975} - v) $$

    with the percentiles q of its bootstrap draws, inside the bounds of the scale. A draw contains noise twice, so draws
    lie as far below the value as the value lies below the truth, and a percentile interval would miss the truth.
    """
    low, high = interval(replicates)
    half = max(value - low, high - value)
    least, most = bounds_of(scale)
    return Interval(max(value - half, min(value, least)), min(value + half, max(value, most)))


def at_least_each_class(ends: Interval, hits: np.ndarray, named: np.ndarray) -> Interval:
    r"""The interval of a macro-averaged F1, widened to the uncertainty of its classes' counts.

    $$ F \pm \frac1K \sqrt{\sum_c (F_c - l_c)^2}, \qquad F_c = \frac{2 J_c}{1 + J_c} $$

    and likewise upwards, where J is the number of correct answers over the number of examples that belong to the class
    or are predicted as it, and l comes from the Wilson interval of J. A class with few examples may have few mistakes
    by luck, which no resample shows.

    Args:
        ends: The interval to widen.
        hits: Correct answers of each class.
        named: For each class, how often it is correct plus how often it is predicted.

    Source: [@wilson1927] and, for the mean of several, [@newcombe1998].
    """
    if not len(hits) or math.isnan(ends.low):
        return ends
    scores, low, high = [], 0.0, 0.0
    for right, both in zip(hits.tolist(), named.tolist(), strict=True):
        num = both - right
        share = right / num if num else 0.0
        half = _NORMAL * math.sqrt(share * (1 - share) / num) if num else 0.0
        own = bounded_interval(share, half, "share", agreeing=_NORMAL**2 / num if num else math.inf)
        score, least, most = (2 * end / (1 + end) for end in (share, *own))
        scores.append(score)
        low, high = low + (score - least) ** 2, high + (most - score) ** 2
    value, size = sum(scores) / len(scores), len(scores)
    return Interval(
        min(ends.low, max(value - math.sqrt(low) / size, 0.0)), max(ends.high, min(value + math.sqrt(high) / size, 1.0))
    )


def at_least_fisher(ends: Interval, value: float, count: int) -> Interval:
    r"""The interval of a correlation, widened to Fisher's interval for `count` normal pairs if that is wider.

    A bootstrap of few pairs underestimates the variation of their correlation.

    $$ \tanh\left(\operatorname{artanh} r \pm 1.96 / \sqrt{n - 3}\right) $$

    With three pairs or fewer, any correlation is possible.

    Source: [@fisher1921].
    """
    if not math.isfinite(value) or abs(value) >= 1:
        return ends
    reach = _NORMAL / math.sqrt(count - 3) if count > 3 else math.inf
    low, high = (math.tanh(math.atanh(value) + sign * reach) for sign in (-1, 1))
    return Interval(min(ends.low, low), max(ends.high, high))
