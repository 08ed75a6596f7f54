"""The range of a statistic, and the single rule by which intervals respect it."""

import math
from typing import Literal

import numpy as np

from ._bootstrap import Interval, interval

Scale = Literal["any", "positive", "share", "percent", "correlation", "explained"] | tuple[float, float]
"""Range of a statistic: any number, at least 0, from 0 to 1, 0 to 100, -1 to 1, at most 1; or its bounds."""

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
    """The minimum and maximum of a statistic of that scale."""
    return scale if isinstance(scale, tuple) else _BOUNDS[scale]


def bounded_interval(value: float, half: float, scale: Scale, *, agreeing: float = 0.0) -> Interval:
    r"""The interval of a statistic with plain interval `value` ± `half`, inside the bounds of its scale.

    Between two bounds a, b it is Wilson's interval of the share $p = (v - a) / (b - a)$, transformed back: its ends
    solve

    $$ (p - q)^2 = \tau\, q (1 - q), \qquad \tau = \frac{h^2}{(v - a)(b - v)} $$

    so that its width matches `half` in the middle, and it extends inwards from a bound if observations nearly agree.
    There a plain interval leaves the bounds, or has no width, and covers too rarely. With a single bound the interval
    is cut there.

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


def difference_interval(value: float, ends: Interval, other_value: float, other_ends: Interval) -> Interval:
    r"""Newcombe's interval of a difference $v - w$ from the intervals of both, if they vary apart.

    $$ \left[ (v - w) - \sqrt{(v - l_v)^2 + (u_w - w)^2},\; (v - w) + \sqrt{(u_v - v)^2 + (w - l_w)^2} \right] $$

    It lies inside the range of the difference if both intervals lie inside theirs, and it has a width where no resample
    moves the difference, since all answers of one model are right.

    Source: [@newcombe1998].
    """
    down = math.hypot(value - ends.low, other_ends.high - other_value)
    up = math.hypot(ends.high - value, other_value - other_ends.low)
    return Interval(value - other_value - down, value - other_value + up)


def symmetric_interval(value: float, replicates: np.ndarray, scale: Scale = "any") -> Interval:
    r"""The interval of a statistic that noise biases one way, such as the correlation of two noisy profiles.

    $$ v \pm \max(v - q_{.025},\; q_{.975} - v) $$

    with the percentiles q of its bootstrap draws, inside the bounds of the scale. A draw contains noise twice, so draws
    lie as far below the value as the value lies below the truth, and a percentile interval would move away from it.
    """
    low, high = interval(replicates)
    half = max(value - low, high - value)
    least, most = bounds_of(scale)
    return Interval(max(value - half, min(value, least)), min(value + half, max(value, most)))


def at_least_each_class(ends: Interval, hits: np.ndarray, named: np.ndarray) -> Interval:
    r"""The interval of a macro-averaged F1, widened to the uncertainty of its classes' counts.

    $$ F \pm \frac1K \sqrt{\sum_c (F_c - l_c)^2}, \qquad F_c = \frac{2 J_c}{1 + J_c} $$

    and upwards likewise, where J is the number of correct answers over the number of examples that are, or are labelled
    as, the class, and l its Wilson end. A class with few examples may have few mistakes by luck, which no resample
    shows.

    Args:
        ends: The interval by other means.
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
