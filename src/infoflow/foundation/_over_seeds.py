r"""Error bars over seeds and sentences: few seeds, all measured on the same sentences.

A number of S seeds varies for two reasons: another seed would give another number, and other sentences would move all
seeds together. As seeds are few, their part follows Student's t with S − 1 degrees of freedom; sentences come from a
bootstrap over `NUM_BLOCKS` blocks. Cochran's rule joins the parts: with variances $V_1, V_2$ of the mean and quantiles
$t_1, t_2$ of each alone, the half width is

    $(t_1 V_1 + t_2 V_2) / \sqrt{V_1 + V_2}$.

The spread between seeds already contains the separate effect of sentences on each seed, so $V_2$ only counts their
common effect on all seeds. Cochran, Approximate Significance Levels of the Behrens-Fisher Test, Biometrics 20 (1964).
"""

# S seeds, U units (a seed, or a pair of seeds), R bootstrap replicates over sentences

from collections.abc import Sequence

import numpy as np

from ._bootstrap import NUM_BLOCKS, Interval
from ._bounded import Scale, bounded_interval

_TAIL = 0.025


def t_quantile(df: float, tail: float = _TAIL) -> float:
    """The quantile that Student's t exceeds with probability `tail`."""
    from scipy.special import stdtrit  # slow import

    return float(stdtrit(df, 1 - tail))


def sentence_df(num_replicates: int) -> float:
    r"""Degrees of freedom of a variance over `num_replicates` replicates of `NUM_BLOCKS` blocks.

    $1 / (1 / (B - 1) + 1 / (R - 1))$: blocks and replicates are both finite.
    """
    return 1 / (1 / (NUM_BLOCKS - 1) + 1 / (num_replicates - 1))


def means_without_each(units: Sequence[tuple[int, ...]], seeds: Sequence[int]) -> np.ndarray:
    """Weights (S, U): row s averages over the units without seed s; NaN if there are none."""
    out_SU = np.array([[seed not in unit for unit in units] for seed in seeds], dtype=float)
    total_S1 = out_SU.sum(axis=1, keepdims=True)
    total_S1[total_S1 == 0] = np.nan
    return out_SU / total_S1


def seed_deviations(mean: np.ndarray, without_S: np.ndarray) -> np.ndarray:
    r"""How far each seed moves the mean, $\sqrt{(S - 1) / S} (m - m_{-s})$, seeds along the first axis.

    Their sum of squares is the jackknife's variance of the mean: $s^2 / S$ for S independent numbers, and for distances
    between seeds, each of which is in S − 1 of the pairs, at least the variance of their mean.
    """
    num = len(without_S)
    return np.sqrt((num - 1) / num) * (mean - without_S)


def shared_part(mean_R: np.ndarray, without_SR: np.ndarray) -> np.ndarray:
    """Share of the replicates' variance that moves all seeds together, 0 to 1; replicates along the last axis.

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
    """Cochran's half width from those of seeds alone and of sentences alone, and at least the latter.

    Few seeds may agree by chance, and then their spread is uninformative.

    Args:
        seeds: Half width by the seeds, whose quantile is `t_seeds`.
        sentences: Half width by the sentences, whose quantile is `t_sentences`.
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

    It lies inside the bounds of the scale, see `bounded_interval`, and covers from three seeds on; see
    `experiments/validation/coverage`.

    Args:
        units: The seeds of each number.
        values_U: The numbers.
        replicates_UR: Their bootstrap replicates over sentences, paired over units; None without a bootstrap.
        own_U: The interval of each over sentences. If no draw moves any number (all answers are correct, or none), the
            bootstrap carries no information, and the mean of these intervals replaces it.
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
