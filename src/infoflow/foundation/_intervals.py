"""Intervals: of a statistic over blocks of sentences, and over few seeds that are measured on the same sentences."""

# S seeds, U units (a seed, or a pair of seeds), R bootstrap replicates over sentences

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ._bootstrap import NUM_BLOCKS, NUM_REPLICATES, Interval, Scale, bounded_interval, bounds_of, replicate_weights

_FEWEST_FOR_SKEWNESS = 10  # units; with fewer, the third moment is noise
_NO_EFFECT = 1e-9  # share of the largest effect or of the statistic; smaller effects are rounding errors
_ROUNDED = 1e-3  # share of the largest effect, for replicates that were rounded in tables
_EXPLAINED = 0.6  # share of the replicates' variance that blocks explain; for random numbers it is a third
_FIRST = np.arange(NUM_BLOCKS) % 2 == 0


def block_effects(value: float, replicates: np.ndarray) -> np.ndarray:
    r"""How far each block moves a statistic, (64,), from its replicates with the weights of `replicate_weights`.

    $$ v_r \approx v + \sum_b (w_{rb} - 1)\, e_b $$

    The effects e are the least-squares solution, which is exact if the statistic is linear in the weights and otherwise
    holds to first order. All are NaN if too few replicates are finite.
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
    """`block_effects` of many statistics at once, (M, 64); each statistic has its own list of replicates."""
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
    """How far each block moves the statistics on the second half, (M, 64); 0 for blocks of the first half."""


def on_halves(values: np.ndarray, replicates: Sequence[Any]) -> Halves:
    r"""M statistics on the even and on the odd bootstrap blocks; a sentence's text determines its block.

    $$ v_A = v + 2 \sum_{b \in A} e_b $$

    to first order, with the effects of `block_effects`. NaN if the replicates do not seem to come from
    `replicate_weights`, because they are too few or the blocks do not explain them.
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
        same = np.nanmax(draws, axis=1) - np.nanmin(draws, axis=1) <= _NO_EFFECT * np.abs(values[known])
        effects[np.flatnonzero(known)[same]] = 0
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
    r"""The interval of a statistic from the effects of independent units, which are blocks of sentences.

    $$ v - s\, g^{-1}(\pm t), \qquad s^2 = \tfrac{m}{m - 1} \sum_b e_b^2, \qquad
       g^{-1}(x) = \tfrac{3}{a} \left( \sqrt[3]{1 + a (x - a / 6)} - 1 \right), \qquad
       a = \frac{\sum_b e_b^3}{(\sum_b e_b^2)^{3/2}} $$

    | symbol  | here                                                                              |
    |---------|-----------------------------------------------------------------------------------|
    | $e_b$   | `effects`: of block b on the statistic, see `block_effects`                        |
    | $m$     | `units`: number of blocks with data; by default, of those with an effect           |
    | $t$     | quantile of Student's t with m − 1 degrees of freedom                              |
    | $g$     | the transformation that removes the skewness of (v − truth) / s                    |

    A statistic with two bounds, such as a share, gets Wilson's interval between them (see `bounded_interval`), for $n =
    v (1 - v) / s^2$ independent observations, or for `count` if no block moves it (all answers are correct).

    The interval covers what another sample of the same number of sentences would give, but neither another training run
    of the model nor a bias that depends on the number of sentences. It is NaN if fewer than two units have data.

    Source: [@hall1992] for the transformation, [@wilson1927] and, with its effective number, [@korn1998].
    """
    effects = np.asarray(effects, dtype=np.float64)
    if not (math.isfinite(value) and np.isfinite(effects).all()):
        return Interval(math.nan, math.nan)
    if np.abs(effects).max(initial=0) <= _NO_EFFECT * abs(value):
        effects = np.zeros_like(effects)
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


# Error bars over seeds and sentences: few seeds, all measured on the same sentences.
#
# A mean over S seeds varies for two reasons: other seeds would give other numbers, and other sentences would move all
# seeds together. As seeds are few, their part follows Student's t with S − 1 degrees of freedom; the sentences' part is
# a bootstrap over `NUM_BLOCKS` blocks. Cochran's rule joins the parts: if each part alone gives the variance $V_i$ of
# the mean and the quantile $t_i$, the half width is
#
#     $(t_1 V_1 + t_2 V_2) / \sqrt{V_1 + V_2}$.
#
# The spread between seeds already contains the separate effect of sentences on each seed, so $V_2$ counts only their
# common effect on all seeds. Cochran, Approximate Significance Levels of the Behrens-Fisher Test, Biometrics 20 (1964).

_TAIL = 0.025


def t_quantile(df: float, tail: float = _TAIL) -> float:
    """The quantile that Student's t exceeds with probability `tail`."""
    from scipy.special import stdtrit  # slow import

    return float(stdtrit(df, 1 - tail))


def sentence_df(num_replicates: int) -> float:
    r"""Degrees of freedom of a variance over `num_replicates` replicates of `NUM_BLOCKS` blocks.

    They are $1 / (1 / (B - 1) + 1 / (R - 1))$, since blocks and replicates are both finite.
    """
    return 1 / (1 / (NUM_BLOCKS - 1) + 1 / (num_replicates - 1))


def means_without_each(units: Sequence[tuple[int, ...]], seeds: Sequence[int]) -> np.ndarray:
    """Weights, (S, U), whose row s averages over the units without seed s; NaN if there are no such units."""
    out_SU = np.array([[seed not in unit for unit in units] for seed in seeds], dtype=float)
    total_S1 = out_SU.sum(axis=1, keepdims=True)
    total_S1[total_S1 == 0] = np.nan
    return out_SU / total_S1


def seed_deviations(mean: np.ndarray, without_S: np.ndarray) -> np.ndarray:
    r"""How far each seed moves the mean, $\sqrt{(S - 1) / S} (m - m_{-s})$, seeds along the first axis.

    Their sum of squares is the jackknife's variance of the mean: $s^2 / S$ for S independent numbers. For distances
    between seeds, where each seed is in S − 1 of the pairs, it is at least the variance of their mean.
    """
    num = len(without_S)
    return np.sqrt((num - 1) / num) * (mean - without_S)


def shared_part(mean_R: np.ndarray, without_SR: np.ndarray) -> np.ndarray:
    """Share of the replicates' variance that moves all seeds together, from 0 to 1; replicates are on the last axis.

    Args:
        mean_R: Replicates of the mean, (..., R), minus the estimate.
        without_SR: Replicates of the mean without each seed, (S, ..., R), minus its estimate.
    """
    apart = (seed_deviations(mean_R, without_SR) ** 2).sum(axis=0).mean(axis=-1)
    whole = mean_R.var(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip(1 - np.nan_to_num(np.where(whole > 0, apart / whole, 0.0)), 0, 1)


def join_halves(
    seeds: np.ndarray, t_seeds: float, sentences: np.ndarray, t_sentences: float, shared: np.ndarray
) -> np.ndarray:
    """Cochran's combination of the half widths for seeds alone and for sentences alone.

    It is at least the half width for sentences, because the spread of few seeds that agree by chance is uninformative.

    Args:
        seeds: Half width for the choice of seeds, with the quantile `t_seeds`.
        sentences: Half width for the choice of sentences, with the quantile `t_sentences`.
        shared: Share of the sentences' variance outside the seeds' spread.
    """
    first, second = (seeds / t_seeds) ** 2, shared * (sentences / t_sentences) ** 2
    whole = np.sqrt(first + second)
    joined = (t_seeds * first + t_sentences * second) / np.where(whole > 0, whole, 1.0)
    return np.fmax(joined, sentences)


def interval_over_seeds(
    units: Sequence[tuple[int, ...]],
    values_U: np.ndarray,
    replicates_UR: np.ndarray | None = None,
    own_U: Sequence[tuple[float, float]] = (),
    scale: Scale = "any",
) -> Interval:
    """95% interval of the mean over units: seeds, or pairs of seeds.

    It lies inside the bounds of the scale (see `bounded_interval`). With three or more seeds, its coverage is correct
    (see `experiments/validation/coverage`).

    Args:
        units: The seeds of each number.
        values_U: The numbers.
        replicates_UR: Their bootstrap replicates over sentences, paired over units; None without a bootstrap.
        own_U: The interval of each number over sentences. If no draw moves any number (all answers are correct, or
            none), the bootstrap carries no information, and the mean of these intervals replaces it.
        scale: Range of the numbers.
    """
    mean, half = float(values_U.mean()), _half_by_student(units, values_U, replicates_UR)
    ends = bounded_interval(mean, half, scale)
    if not len(own_U) or replicates_UR is None or not (replicates_UR == replicates_UR[:, :1]).all():
        return ends
    low, high = np.array(own_U, dtype=float).mean(axis=0)
    return Interval(float(np.fmin(ends.low, low)), float(np.fmax(ends.high, high)))


def _half_by_student(units: Sequence[tuple[int, ...]], values_U: np.ndarray, replicates_UR: np.ndarray | None) -> float:
    """Half the width of the mean's plain interval."""
    seeds = sorted({seed for unit in units for seed in unit})
    without_SU = means_without_each(units, seeds)
    mean = float(values_U.mean())
    deviations_S = seed_deviations(np.array(mean), without_SU @ values_U)
    by_seed, t_seeds = np.full(1, np.nan), np.nan
    if len(seeds) > 1:
        t_seeds = t_quantile(len(seeds) - 1)
        by_seed[:] = t_seeds * np.sqrt((deviations_S**2).sum())
    if replicates_UR is None or replicates_UR.shape[1] < 2:
        half = by_seed
    else:
        noise_UR = replicates_UR - replicates_UR.mean(axis=1, keepdims=True)
        noise_1R = noise_UR.mean(axis=0, keepdims=True)
        t_sentences = t_quantile(sentence_df(noise_UR.shape[1]))
        half = t_sentences * noise_1R.std(axis=1, ddof=1)
        if np.isfinite(by_seed).all():
            shared = shared_part(noise_1R, (without_SU @ noise_UR)[:, None])
            half = join_halves(by_seed, t_seeds, half, t_sentences, shared)
    return float(half[0])
