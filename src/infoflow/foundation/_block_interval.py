"""The interval of a statistic from what each block of sentences adds to it."""

import math
from functools import cache
from typing import Literal

import numpy as np

from ._bootstrap import NUM_BLOCKS, NUM_REPLICATES, Interval, replicate_weights

Scale = Literal["any", "positive", "share"]
"""What a statistic can be: any number, none below 0, or a mean of numbers from 0 to 1."""

_FEWEST_FOR_SKEWNESS = 10  # units; a third moment of fewer is noise
_NO_EFFECT = 1e-9  # of the largest effect: what rounding leaves of a block without data


def block_effects(value: float, replicates: np.ndarray) -> np.ndarray:
    r"""By how much each block moves a statistic (64,), read off its replicates with the weights of `replicate_weights`.

    $$ v_r \approx v + \sum_b (w_{rb} - 1)\, e_b $$

    e is the least-squares solution: exact where the statistic is linear in the weights, else to first order. All NaN
    where too few replicates are finite.
    """
    values = np.asarray(replicates, dtype=np.float64)
    finite = np.isfinite(values)
    if not math.isfinite(value) or finite.sum() <= NUM_REPLICATES // 2:
        return np.full(NUM_BLOCKS, np.nan)
    if finite.all():
        return _inverse() @ (values - value)
    shares = (replicate_weights() - 1)[finite]
    return np.linalg.lstsq(shares, values[finite] - value, rcond=1e-9)[0]


@cache
def _inverse() -> np.ndarray:
    return np.linalg.pinv(replicate_weights() - 1)


def block_interval(
    value: float,
    effects: np.ndarray,
    *,
    units: int | None = None,
    scale: Scale = "any",
    count: float = math.inf,
    level: float = 0.95,
) -> Interval:
    r"""The interval of a statistic from the effects of independent units: blocks of sentences.

    $$ v - s\, g^{-1}(\pm t), \qquad s^2 = \tfrac{m}{m - 1} \sum_b e_b^2, \qquad
       g^{-1}(x) = \tfrac{3}{a} \left( \sqrt[3]{1 + a (x - a / 6)} - 1 \right), \qquad
       a = \frac{\sum_b e_b^3}{(\sum_b e_b^2)^{3/2}} $$

    | symbol  | here                                                                              |
    |---------|-----------------------------------------------------------------------------------|
    | $e_b$   | `effects`: of block b on the statistic, see `block_effects`                        |
    | $m$     | `units`: how many blocks hold data; by default, have an effect                     |
    | $t$     | quantile of Student's t with m − 1 degrees of freedom                              |
    | $g$     | the transformation that takes the skewness from (v − truth) / s                    |

    A share has no room beyond 0 and 1, and none of its replicates may differ from it: its interval is Wilson's, of
    $n = v (1 - v) / s^2$ independent observations, or of `count` where all observations agree.

    It covers what another sample of as many sentences would give; neither another training of the model nor a bias
    that depends on the number of sentences. NaN where fewer than two units hold data.

    Source: [@hall1992] for the transformation, [@wilson1927] and, with its effective number, [@korn1998].
    """
    effects = np.asarray(effects, dtype=np.float64)
    if not (math.isfinite(value) and np.isfinite(effects).all()):
        return Interval(math.nan, math.nan)
    if units is None:
        units = int((np.abs(effects) > _NO_EFFECT * np.abs(effects).max(initial=0)).sum())
        if units == 0 and scale != "share":
            return Interval(value, value)
        units = units or NUM_BLOCKS
    if units < 2:
        return Interval(math.nan, math.nan)
    square = float(effects @ effects)
    spread, t = math.sqrt(square * units / (units - 1)), _t_quantile(units - 1, (1 + level) / 2)
    if scale == "share":
        return _share_interval(value, spread, t, count)
    skewness = float((effects**3).sum()) / square**1.5 if square > 0 and units >= _FEWEST_FOR_SKEWNESS else 0.0
    low, high = (value - spread * _without_skewness(x, skewness) for x in (t, -t))
    return Interval(max(low, min(value, 0.0)), high) if scale == "positive" else Interval(low, high)


def _without_skewness(x: float, skewness: float) -> float:
    if abs(skewness) < 1e-6:
        return x
    return 3 / skewness * (float(np.cbrt(1 + skewness * (x - skewness / 6))) - 1)


def _share_interval(value: float, spread: float, t: float, count: float) -> Interval:
    inside = 0 < value < 1 and spread > 0
    trust = t**2 * (spread**2 / (value * (1 - value)) if inside else 1 / count if count > 0 else math.inf)
    if math.isinf(trust):
        return Interval(0.0, 1.0)
    room = max(value * (1 - value), 0.0)
    middle, half = (value + trust / 2) / (1 + trust), math.sqrt(trust * room + trust**2 / 4) / (1 + trust)
    # Rounding may carry a value an ulp beyond 0 or 1, and the interval's end an ulp to its inner side.
    return Interval(max(min(middle - half, value), min(value, 0.0)), min(max(middle + half, value), max(value, 1.0)))


@cache
def _t_quantile(freedom: int, level: float) -> float:
    from scipy.special import stdtrit  # takes long to import

    return float(stdtrit(freedom, level))
