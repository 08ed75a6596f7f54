"""The interval of a statistic from the contribution of each block of sentences."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ._bootstrap import NUM_BLOCKS, NUM_REPLICATES, Interval, replicate_weights
from ._bounded import Scale, bounded_interval, bounds_of

_FEWEST_FOR_SKEWNESS = 10  # units; a third moment of fewer is noise
_NO_EFFECT = 1e-9  # of the largest effect: rounding error of a block without data
_ROUNDED = 1e-3  # the same for replicates that tables have rounded
_EXPLAINED = 0.6  # of the replicates' variance; 64 blocks explain a third of random numbers
_FIRST = np.arange(NUM_BLOCKS) % 2 == 0


def block_effects(value: float, replicates: np.ndarray) -> np.ndarray:
    r"""How far each block moves a statistic (64,), from its replicates with the weights of `replicate_weights`.

    $$ v_r \approx v + \sum_b (w_{rb} - 1)\, e_b $$

    e is the least-squares solution: exact if the statistic is linear in the weights, else to first order. All NaN if
    too few replicates are finite.
    """
    values = np.asarray(replicates, dtype=np.float64)
    finite = np.isfinite(values)
    if not math.isfinite(value) or finite.sum() <= NUM_REPLICATES // 2:
        return np.full(NUM_BLOCKS, np.nan)
    if finite.all():
        return _inverse() @ (values - value)
    shares = (replicate_weights() - 1)[finite]
    return np.linalg.lstsq(shares, values[finite] - value, rcond=1e-9)[0]


def effects_of_all(values: np.ndarray, replicates: Sequence[Any]) -> np.ndarray:
    """`block_effects` of many statistics at once, (M, 64), each with its list of replicates."""
    if all(len(row) == NUM_REPLICATES for row in replicates):
        draws = np.array(replicates, dtype=np.float64).reshape(-1, NUM_REPLICATES)
        if np.isfinite(draws).all() and np.isfinite(values).all():
            return (draws - values[:, None]) @ _inverse().T
    found = [block_effects(value, np.asarray(row)) for value, row in zip(values, replicates, strict=True)]
    return np.array(found).reshape(-1, NUM_BLOCKS)


class Halves(NamedTuple):
    """Statistics on two halves of the sentences, for selection on one and reporting on the other."""

    first: np.ndarray
    second: np.ndarray
    effects: np.ndarray
    """How far each block moves the second, (M, 64); 0 for blocks of the first half."""


def on_halves(values: np.ndarray, replicates: Sequence[Any]) -> Halves:
    r"""M statistics on the even and on the odd bootstrap blocks, which are determined by a sentence's text.

    $$ v_A = v + 2 \sum_{b \in A} e_b $$

    to first order, with the effects of `block_effects`. NaN if the replicates do not come from `replicate_weights`:
    they are too few, or the blocks do not explain them.
    """
    known = np.array([len(row) == NUM_REPLICATES and not np.isnan(row).all() for row in replicates], dtype=bool)
    known &= ~np.isnan(values)
    effects = np.full((len(values), NUM_BLOCKS), np.nan)
    if known.any():
        draws = [row for row, there in zip(replicates, known, strict=True) if there]
        effects[known] = effects_of_all(values[known], draws)
        rest = np.array(draws, dtype=np.float64) - values[known, None]
        left = rest - effects[known] @ (replicate_weights() - 1).T
        effects[np.flatnonzero(known)[np.nanvar(left, axis=1) > (1 - _EXPLAINED) * np.nanvar(rest, axis=1)]] = np.nan
    effects *= 2
    own = effects[:, ~_FIRST]
    there = np.abs(own) > _ROUNDED * np.abs(own).max(axis=1, keepdims=True)
    mean = np.where(there, own, 0.0).sum(axis=1, keepdims=True) / np.maximum(there.sum(axis=1, keepdims=True), 1)
    centred = np.zeros_like(effects)
    centred[:, ~_FIRST] = np.where(there, own - mean, np.where(np.isnan(own), np.nan, 0.0))
    return Halves(values + effects[:, _FIRST].sum(axis=1), values + own.sum(axis=1), centred)


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
    | $g$     | the transformation that removes the skewness of (v − truth) / s                    |

    A statistic with two bounds, such as a share, gets Wilson's interval between them, see `bounded_interval`: for $n =
    v (1 - v) / s^2$ independent observations, or for `count` if no block moves it (all answers are correct).

    It covers the results of another sample of as many sentences, but neither another training of the model nor a bias
    that depends on the number of sentences. NaN if fewer than two units have data.

    Source: [@hall1992] for the transformation, [@wilson1927] and, with its effective number, [@korn1998].
    """
    effects = np.asarray(effects, dtype=np.float64)
    if not (math.isfinite(value) and np.isfinite(effects).all()):
        return Interval(math.nan, math.nan)
    if units is None:
        units = int((np.abs(effects) > _NO_EFFECT * np.abs(effects).max(initial=0)).sum())
        if units == 0 and not _is_closed(scale):
            return Interval(value, value)
        units = units or NUM_BLOCKS
    if units < 2:
        return Interval(math.nan, math.nan)
    square = float(effects @ effects)
    spread, t = math.sqrt(square * units / (units - 1)), _t_quantile(units - 1, (1 + level) / 2)
    if _is_closed(scale):
        return bounded_interval(value, t * spread, scale, agreeing=t**2 / count if count > 0 else math.inf)
    skewness = float((effects**3).sum()) / square**1.5 if square > 0 and units >= _FEWEST_FOR_SKEWNESS else 0.0
    low, high = (value - spread * _without_skewness(x, skewness) for x in (t, -t))
    least, most = bounds_of(scale)
    return Interval(max(low, min(value, least)), min(high, max(value, most)))


def _is_closed(scale: Scale) -> bool:
    return all(map(math.isfinite, bounds_of(scale)))


def _without_skewness(x: float, skewness: float) -> float:
    if abs(skewness) < 1e-6:
        return x
    return 3 / skewness * (float(np.cbrt(1 + skewness * (x - skewness / 6))) - 1)


@cache
def _t_quantile(freedom: int, level: float) -> float:
    from scipy.special import stdtrit  # slow import

    return float(stdtrit(freedom, level))
