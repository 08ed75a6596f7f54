"""Other seeds and sentences drawn from a claim's rows, and the interval of any statistic from these draws."""

# N draws, S seeds, R sentence replicates, P replicates that are also taken without each seed, K points of a curve
# C columns of a condition, N draws, D deviations (seeds, or sentence replicates)

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise, starmap

import numpy as np

from infoflow import foundation
from infoflow.results import Samples

# Rows of curves for a claim's statistic: the estimate, each seed, and draws of other seeds and sentences.
#
# A statistic is any function of a row. It uses curves averaged over seeds, as a figure shows them, so rows consist of
# curves. How far the deviations move the statistic is determined afterwards (below).

NUM_DRAWS = 600
_NUM_APART = 600  # total number of rows in `replicates_without_seed`


@dataclass(frozen=True, kw_only=True, eq=False)
class ResampledRows:
    """The role of each row of resampled curves.

    Each draw is the estimate plus a random sum of deviations, scaled as in Student's t distribution. The deviations of
    seeds have S − 1 degrees of freedom, those of sentence replicates the degrees of freedom of their bootstrap. For a
    linear statistic, such draws have the distribution of its t interval for any number of seeds; for a ratio, their
    percentiles form Fieller's interval. Draws come in mirrored pairs.
    """

    num_seeds: int
    num_replicates: int
    num_apart: int  # P: replicates that are also computed without each seed in turn
    seed_weights_NS: np.ndarray  # empty with one seed
    sentence_weights_NR: np.ndarray
    seeds: slice  # the single seeds, after the estimate
    without_seed: slice  # the mean without each seed in turn
    seed_draws: slice  # redrawn seeds
    joint_draws: slice  # redrawn seeds and sentences
    sentence_draws: slice  # redrawn sentences
    replicates: slice  # the mean in each sentence replicate
    replicates_without_seed: slice  # the mean in each sentence replicate without each seed in turn, seed by seed


@lru_cache(maxsize=16)
def plan_rows(num_seeds: int, num_replicates: int, redraw: int = 0) -> ResampledRows:
    """The roles of the rows for these numbers of seeds and replicates; all claims share one `redraw`'s draws."""
    several = num_seeds > 1
    apart = min(num_replicates, max(2, _NUM_APART // num_seeds)) if several else 0
    sizes = {
        "seeds": num_seeds,
        "without_seed": num_seeds * several,
        "seed_draws": NUM_DRAWS * several,
        "joint_draws": NUM_DRAWS * several,
        "sentence_draws": NUM_DRAWS,
        "replicates": num_replicates,
        "replicates_without_seed": num_seeds * apart,
    }
    ends = accumulate(sizes.values(), initial=1)  # the estimate comes first
    seed_weights = _mirrored("seeds", num_seeds, num_seeds - 1, redraw) if several else np.empty((0, num_seeds))
    return ResampledRows(
        num_seeds=num_seeds,
        num_replicates=num_replicates,
        num_apart=apart,
        seed_weights_NS=seed_weights,
        sentence_weights_NR=_mirrored("sentences", num_replicates, foundation.sentence_df(num_replicates), redraw),
        **dict(zip(sizes, starmap(slice, pairwise(ends)), strict=True)),
    )


def resampled_curves(estimates: Mapping[str, Samples], seeds: list[int], redraw: int = 0) -> tuple[dict, ResampledRows]:
    rows = plan_rows(len(seeds), min(one.num_replicates for one in estimates.values()), redraw)
    return {name: _rows_of(one, seeds, rows) for name, one in estimates.items()}, rows


def _mirrored(name: str, num_deviations: int, df: float, redraw: int) -> np.ndarray:
    """Normal weights times the scale of Student's t, (N, deviations); the second half negates the first."""
    rng = foundation.stream("findings", name, num_deviations, *([redraw] if redraw else []))
    half = rng.standard_normal((NUM_DRAWS // 2, num_deviations))
    half *= np.sqrt(df / rng.chisquare(df, (NUM_DRAWS // 2, 1)))
    return np.concatenate([half, -half])


def _rows_of(one: Samples, seeds: list[int], rows: ResampledRows) -> np.ndarray:
    mean_1K = one.mean()
    noise_URK = one.noise(rows.num_replicates)
    noise_RK = noise_URK.mean(axis=0)
    by_sentence_NK = rows.sentence_weights_NR @ (noise_RK / np.sqrt(len(noise_RK) - 1))
    parts = [mean_1K, *(one.alone(seed) for seed in seeds)]
    if rows.num_seeds > 1:
        without_SU = foundation.means_without_each(one.units, seeds)
        without_SK = without_SU @ one.values_UK
        by_seed_NK = rows.seed_weights_NS @ foundation.seed_deviations(mean_1K, without_SK)
        parts += [without_SK, mean_1K + by_seed_NK, mean_1K + by_seed_NK + by_sentence_NK]
    parts += [mean_1K + by_sentence_NK, mean_1K + noise_RK]
    if rows.num_seeds > 1:
        apart_SPK = np.einsum("su,upk->spk", without_SU, noise_URK[:, : rows.num_apart])
        parts.append((without_SK[:, None] + apart_SPK).reshape(-1, mean_1K.shape[1]))
    return np.concatenate(parts)


# The interval of any statistic from its rows, over seeds and sentences.
#
# A statistic that is nearly linear in the curves has one standard error for the seeds and one for the sentences, which
# `infoflow.foundation.join_halves` joins. Each end is the statistic's percentile over draws with a control variate: the
# same percentile of the draws' linear approximation is replaced by its true value $t s$. For a linear statistic only
# that value remains, and no draw matters; for a ratio the result is nearly Fieller's interval.
#
# Other statistics, such as a rank correlation, jump where curves cross. Joint draws of seeds and sentences then give
# the percentiles, so the interval contains whatever might have been observed by chance near a tie.

TAIL = 0.025
_ROUGH = 0.2  # largest error of a linear approximation, as a share of the median draw
_RESOLUTION = 1e-9  # relative deviations below this are rounding
_NEAR_TIES = 0.4  # factor of the tail, since draws centre on the observed order and so miss the true one more often


class _Sorted:
    """Sorted columns of draws for percentiles; non-finite values are left out."""

    def __init__(self, values_NC: np.ndarray) -> None:
        finite_NC = np.isfinite(values_NC)
        self._values_NC = np.sort(np.where(finite_NC, values_NC, np.inf), axis=0)
        self._num_C = finite_NC.sum(axis=0)
        self._enough_C = 2 * self._num_C >= len(values_NC)

    def ends(self, tail: float) -> np.ndarray:
        """The percentiles at `tail` and 1 − `tail`, (2, C), between order statistics; NaN if most draws are missing."""
        position_2C = np.array([[tail], [1 - tail]]) * np.maximum(self._num_C - 1, 0)
        below_2C = position_2C.astype(int)
        above_2C = np.minimum(below_2C + 1, np.maximum(self._num_C - 1, 0))
        low_2C, high_2C = (np.take_along_axis(self._values_NC, at, axis=0) for at in (below_2C, above_2C))
        return np.where(self._enough_C, low_2C + (position_2C - below_2C) * (high_2C - low_2C), np.nan)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """The contribution of one source of variation to a statistic's columns."""

    weights_ND: np.ndarray
    moves_NC: np.ndarray  # the statistic in each draw, minus the estimate
    effects_DC: np.ndarray  # the effect of each single deviation
    df: float

    @cached_property
    def linear_NC(self) -> np.ndarray:
        return self.weights_ND @ self.effects_DC

    @cached_property
    def _sorted(self) -> tuple[_Sorted, _Sorted]:
        return _Sorted(self.moves_NC), _Sorted(self.linear_NC)

    def halves(self, num_tests: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Half widths of the interval below and above the estimate, (C,), and the quantile that they use."""
        quantile = largest_t(num_tests, self.df)
        exact_C = quantile * np.sqrt((self.effects_DC**2).sum(axis=0))
        tail = t_tail(quantile, self.df)
        ends = self._sorted[0].ends(tail) - self._sorted[1].ends(tail)
        return np.maximum(exact_C - ends[0], 0), np.maximum(exact_C + ends[1], 0), quantile


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """The contributions of seeds and sentences to the spread of a statistic's columns."""

    rows: ResampledRows
    estimate_C: np.ndarray
    sentences: _Part
    seeds: _Part | None  # None if fewer than two seeds, or two pairs of seeds, were measured
    shared_C: np.ndarray
    joint_NC: np.ndarray  # joint draws of both, minus the estimate

    @classmethod
    @np.errstate(invalid="ignore")
    def of(cls, values: np.ndarray, rows: ResampledRows) -> "Spread":
        """Build a spread from a statistic's values on all rows, (rows, C); undefined estimates stay undefined."""
        estimate_C, replicates_RC = values[0], values[rows.replicates]
        noise_RC = _finite(replicates_RC - replicates_RC.mean(axis=0))
        sentences = _Part(
            weights_ND=rows.sentence_weights_NR,
            moves_NC=values[rows.sentence_draws] - estimate_C,
            effects_DC=noise_RC / np.sqrt(len(noise_RC) - 1),
            df=foundation.sentence_df(rows.num_replicates),
        )
        without_SC, moves_NC = values[rows.without_seed], values[rows.seed_draws] - estimate_C
        seeds, shared_C, joint_NC = None, np.ones_like(estimate_C), sentences.moves_NC
        if np.isfinite(moves_NC).any():
            seeds = _Part(
                weights_ND=rows.seed_weights_NS,
                moves_NC=moves_NC,
                effects_DC=_finite(foundation.seed_deviations(estimate_C, without_SC)),
                df=rows.num_seeds - 1,
            )
            apart_SPC = values[rows.replicates_without_seed].reshape(rows.num_seeds, rows.num_apart, -1)
            apart_SPC = _finite(apart_SPC - without_SC[:, None])
            shared_C = foundation.shared_part(noise_RC[: rows.num_apart].T, apart_SPC.transpose(0, 2, 1))
            joint_NC = values[rows.joint_draws] - estimate_C
        return cls(
            rows=rows, estimate_C=estimate_C, sentences=sentences, seeds=seeds, shared_C=shared_C, joint_NC=joint_NC
        )

    def seed_error(self, column: int) -> float:
        return float("nan") if self.seeds is None else float(np.sqrt((self.seeds.effects_DC[:, column] ** 2).sum()))

    def sentence_error(self, column: int) -> float:
        """Standard error from the choice of sentences, without the part that the spread over seeds contains."""
        whole = (self.sentences.effects_DC[:, column] ** 2).sum()
        return float(np.sqrt(np.clip(self.shared_C[column], 0.0, 1.0) * whole))

    @cached_property
    def _nearly_linear(self) -> np.ndarray:
        """Whether the linear approximation follows each column closely, (C,)."""
        parts = [self.sentences.linear_NC, *([self.seeds.linear_NC] if self.seeds is not None else [])]
        rest_C, whole_C = (np.median(np.abs(one), axis=0) for one in (self.joint_NC - sum(parts), self.joint_NC))
        return rest_C <= _ROUGH * whole_C + _RESOLUTION * np.abs(self.estimate_C)

    @cached_property
    def _steps(self) -> _Sorted:
        return _Sorted(self.joint_NC)

    def ends(self, num_tests: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the columns' 95 % intervals, each (C,); for `num_tests`, see `largest_t`."""
        with np.errstate(invalid="ignore"):
            down, up, t_sentences = self.sentences.halves(num_tests)
            linear, df = self._nearly_linear, self.sentences.df
            if self.seeds is not None:
                df = self.seeds.df
                *halves, t_seeds = self.seeds.halves(num_tests)
                down, up = (
                    foundation.join_halves(own, t_seeds, other, t_sentences, self.shared_C)
                    for own, other in zip(halves, (down, up), strict=True)
                )
            if not linear.all():
                low, high = self._steps.ends(_NEAR_TIES * t_tail(largest_t(num_tests, df), df))
                down, up = np.where(linear, down, np.maximum(-low, 0)), np.where(linear, up, np.maximum(high, 0))
            return self.estimate_C - down, self.estimate_C + up


@lru_cache(maxsize=256)
def largest_t(num: int, df: float) -> float:
    """The 97.5 % quantile of the largest of `num` independent normal variables over one standard error.

    For one variable this is Student's quantile. The standard error has `df` degrees of freedom and belongs to the
    largest variable only, so this is far less than Bonferroni's quantile, which guards against the smallest of all
    standard errors.
    """
    from scipy.special import gammaincinv, ndtr  # slow imports

    if num == 1:
        return foundation.t_quantile(df, TAIL)
    shares = (np.arange(4000) + 0.5) / 4000
    scales = np.sqrt(2 * gammaincinv(df / 2, shares) / df)
    low, high = 0.0, foundation.t_quantile(df, TAIL / num)  # Bonferroni's
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(ndtr(middle * scales) ** num) < 1 - TAIL else (low, middle)
    return high


def t_tail(quantile: float, df: float) -> float:
    from scipy.special import stdtr  # slow import

    return float(stdtr(df, -quantile))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
