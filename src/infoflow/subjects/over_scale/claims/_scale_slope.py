"""The slope of an effect over the logarithm of scale, with its interval, and its class: grows, flat, falls."""

# P points, S sources of chance, K checkpoints

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from infoflow.foundation import sentence_df, t_quantile

# The slope of an effect over the logarithm of scale; its interval respects where each effect's own interval comes from.
#
# $$ b = \sum_k c_k y_k, \quad c_k = w_k (x_k - \bar x) / \sum_j w_j (x_j - \bar x)^2, \quad w_k = 1 / (\hat\sigma^2 /
# n_k + s_k^2), \quad x_k = \log_{10} \text{scale} $$
#
# y_k is the effect of run k, \(\bar x\) the weighted mean. The variance V_k of the effect has a part from its n_k
# seeds and one from sentences, s_k²; both are stretched if the interval is wider than these two imply. Weights pool the
# seeds' part over all runs, \(\hat\sigma^2\): with three seeds, a run's own variance may by chance be a tenth of the
# true one, and that run would dominate the regression (with such weights, 95 % intervals over six scales covered .91).
#
# The variance of b is \(\sum_k c_k^2 V_k\), with parts that have their own degrees of freedom: the seeds of each run,
# their sentences, and the pooled seeds for runs with one seed. The interval is Student's, with Satterthwaite's degrees
# of freedom. **A run with one seed** has an interval over sentences alone; the spread of one seed comes from runs that
# have several. **If no run has several**, only the runs' distance from the line shows the effect of a seed: Student's
# interval of a weighted regression, with two degrees of freedom fewer than runs.
#
# Runs may share their sentences, which then shift all effects together: the interval is wider than necessary.
#
# Source: [@satterthwaite1946]; simulations in experiments/validation/coverage.


LEAST_SCALES = 3
SAME_SCALE = 1.25  # sizes whose ratio is below this count as one scale
_SENTENCES = sentence_df(200)

Method = Literal["intervals", "residuals", "seeds", ""]
"""Source of a slope's interval: the runs' own intervals, their distance from the line, or each seed's own slope."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalePoint:
    """The effect of one run at one scale."""

    size: float  # tokens, or width
    effect: float
    low: float
    high: float
    seeds: int = 1
    seed_error: float = np.nan  # standard error from the choice of seeds; NaN if the interval does not cover it
    sentence_error: float = 0.0  # standard error from sentences, beyond what the spread over seeds contains


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleSlope:
    """How an effect changes when the scale becomes ten times as large."""

    value: float
    low: float
    high: float
    fit: float  # root mean square distance from the line, in standard errors; NaN if the distances define the interval
    method: Method
    turns: str = ""  # the first step that clearly contradicts the slope


NO_SLOPE = ScaleSlope(value=np.nan, low=np.nan, high=np.nan, fit=np.nan, method="")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Variances:
    """Variances of each point by independent sources, each with its degrees of freedom."""

    sources_SP: np.ndarray
    df_S: np.ndarray
    smooth_P: np.ndarray  # variances with the seeds' part pooled over all runs, for weights

    def half(self, weights_P: np.ndarray) -> float:
        """Half width of the 95 % interval of a weighted sum of the points."""
        each_S = self.sources_SP @ weights_P**2
        total = each_S.sum()
        if total <= 0:
            return 0.0
        return float(t_quantile(total**2 / (each_S**2 / self.df_S).sum()) * np.sqrt(total))


def num_scales(sizes: Sequence[float]) -> int:
    """The number of distinct scales, each at least `SAME_SCALE` times the preceding one."""
    return len(set(scale_groups(sizes)))


def scale_groups(sizes: Sequence[float]) -> list[int]:
    """The number of the scale to which each size belongs, from the smallest scale."""
    groups, number, first = [0] * len(sizes), -1, 0.0
    for place in sorted(range(len(sizes)), key=lambda place: sizes[place]):
        if number < 0 or sizes[place] > SAME_SCALE * first:
            number, first = number + 1, sizes[place]
        groups[place] = number
    return groups


def scale_slope(points: Sequence[ScalePoint]) -> ScaleSlope:
    """The slope over runs, one point each; `NO_SLOPE` for fewer than three scales."""
    if num_scales([point.size for point in points]) < LEAST_SCALES:
        return NO_SLOPE
    points = sorted(points, key=lambda point: (point.size, point.effect))  # any order gives the same bits
    x_P = np.log10([point.size for point in points])
    y_P = np.array([point.effect for point in points])
    variances = _variances(points)
    if variances is None:
        return _by_residuals(x_P, y_P)
    c_P, rest_P = _line(x_P, y_P, variances.smooth_P)
    value, half = float(c_P @ y_P), variances.half(c_P)
    fit = float(np.sqrt((rest_P**2 / variances.smooth_P).sum() / (len(points) - 2)))
    turns = _turns(points, y_P, value, variances)
    return ScaleSlope(value=value, low=value - half, high=value + half, fit=fit, method="intervals", turns=turns)


def course_slope(sizes: Sequence[float], effects: Sequence[Sequence[float]]) -> ScaleSlope:
    """The slope over checkpoints of one run: one slope per seed, then Student's interval over the seeds.

    Checkpoints of a training run depend on each other but seeds do not, so a seed counts once, however many
    checkpoints it has.

    Args:
        sizes: Sizes of the checkpoints.
        effects: Effects of all seeds at each checkpoint.
    """
    if len({len(own) for own in effects}) != 1 or num_scales(sizes) < LEAST_SCALES:
        return NO_SLOPE
    effects_KS = np.array([list(own) for own in effects], dtype=float)
    if not effects_KS.size or not np.isfinite(effects_KS).all():
        return NO_SLOPE
    x_K = np.log10(sizes)
    centred_K = x_K - x_K.mean()
    slopes_S = centred_K @ effects_KS / (centred_K @ centred_K)
    num, value = len(slopes_S), float(slopes_S.mean())
    if num < 2:
        return ScaleSlope(value=value, low=np.nan, high=np.nan, fit=np.nan, method="seeds")
    half = float(t_quantile(num - 1) * slopes_S.std(ddof=1) / np.sqrt(num))
    return ScaleSlope(value=value, low=value - half, high=value + half, fit=np.nan, method="seeds")


def _line(x_P: np.ndarray, y_P: np.ndarray, variances_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights of the points in the slope, and the residuals of the line."""
    weights_P = 1 / variances_P
    weights_P = weights_P / weights_P.sum()
    centred_P = x_P - weights_P @ x_P
    c_P = weights_P * centred_P / (weights_P @ centred_P**2)
    return c_P, y_P - weights_P @ y_P - (c_P @ y_P) * centred_P


def _by_residuals(x_P: np.ndarray, y_P: np.ndarray) -> ScaleSlope:
    """Student's interval of the plain regression, for points whose own intervals do not cover seeds.

    It assumes that seeds spread equally at all scales, and gives intervals over sentences no weight.
    """
    c_P, rest_P = _line(x_P, y_P, np.ones_like(x_P))
    df, value = len(x_P) - 2, float(c_P @ y_P)
    half = t_quantile(df) * float(np.sqrt((rest_P**2).sum() / df * (c_P**2).sum()))
    return ScaleSlope(value=value, low=value - half, high=value + half, fit=np.nan, method="residuals")


def _variances(points: Sequence[ScalePoint]) -> _Variances | None:
    """The sources of variance of all points; None if a point has one seed and no point has several."""
    places_PP = np.eye(len(points))
    sources, dfs = [], []
    for place_P, point in zip(places_PP, points, strict=True):
        by_seeds, by_sentences = _parts(point)
        sources += [place_P * by_seeds, place_P * by_sentences]
        dfs += [max(point.seeds - 1, 1), _SENTENCES]
    share_P = np.array([1 / max(point.seeds, 1) for point in points])
    alone_P = np.where([np.isnan(point.seed_error) for point in points], share_P, 0.0)
    spread, df = _pooled(points)
    if alone_P.any():
        if df == 0:
            return None
        sources.append(alone_P * spread)
        dfs.append(df)
    smooth_P = share_P * spread + np.array([_parts(point)[1] for point in points])
    smooth_P = np.maximum(smooth_P, 1e-12 + 1e-3 * smooth_P.max())  # the variance of a share at its bound may vanish
    return _Variances(sources_SP=np.array(sources), df_S=np.array(dfs, dtype=float), smooth_P=smooth_P)


def _parts(point: ScalePoint) -> tuple[float, float]:
    """The variances from seeds (0 if unknown) and from sentences that together imply the point's interval.

    The interval of a rank correlation, of the weakest among many layers or of a counted share is wider than its two
    standard errors imply, so both are stretched equally.
    """
    half = abs(point.high - point.low) / 2
    known = point.seeds > 1 and not np.isnan(point.seed_error)
    t_sentences = t_quantile(_SENTENCES)
    t_seeds = t_quantile(point.seeds - 1) if known else t_sentences
    first, second = (point.seed_error**2 if known else 0.0), point.sentence_error**2
    whole = first + second
    if whole <= 0:
        return 0.0, (half / t_sentences) ** 2
    stretch = max(half * np.sqrt(whole) / (t_seeds * first + t_sentences * second), 1.0) ** 2  # Cochran's half width
    return first * stretch, second * stretch


def _pooled(points: Sequence[ScalePoint]) -> tuple[float, int]:
    """The variance between seeds, pooled over runs that have several, and its degrees of freedom."""
    several = [(point.seeds, _parts(point)[0]) for point in points if not np.isnan(point.seed_error)]
    df = sum(num - 1 for num, _ in several)
    return (sum(num * variance * (num - 1) for num, variance in several) / df, df) if df else (0.0, 0)


def _turns(points: Sequence[ScalePoint], y_P: np.ndarray, slope: float, variances: _Variances) -> str:
    """The first step between successive scales that clearly contradicts the slope, in words."""
    groups = scale_groups([point.size for point in points])
    for index in range(len(points) - 1):
        if groups[index] == groups[index + 1]:
            continue
        step_P = np.zeros(len(points))
        step_P[index], step_P[index + 1] = -1.0, 1.0
        step = float(step_P @ y_P)
        if step * slope < 0 and abs(step) > variances.half(step_P):
            return f"from {points[index].size:,.0f} to {points[index + 1].size:,.0f}"
    return ""


# Classifies a slope over scale: grows, flat, falls or undetermined.


Trend = Literal["grows", "flat", "falls", "undetermined"]

FLAT = 0.1
"""Maximum change of a flat effect per tenfold scale, as a share of the distance from threshold to published value.

From a million tokens, where small studies begin, to the hundred billion of large models there are five decades. An
effect that changes by less than a tenth of the distance per decade would cover less than half of it over this range. So
an effect at the threshold would not reach the published value, nor would one at the published value fall to the
threshold.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleTrend:
    """A trend as one word and as a phrase with its direction, and how close to zero the slope of a flat effect lies."""

    word: Trend
    told: str  # the word with its direction
    flat_within: float
    reason: str = ""  # why it is undetermined


def scale_trend(
    slope: ScaleSlope, *, effect: float, threshold: float, above: bool, published: float = float("nan")
) -> ScaleTrend:
    """What a slope means for a claim.

    - *flat*: the whole interval lies within `FLAT` times the distance from the threshold to the published value, or,
      if the source gives none, to the effect;
    - *grows*, *falls*: not flat, and the interval does not contain zero: the effect moves in the direction of the
      claim, or away from it;
    - *undetermined*: none of these, or the effect clearly moves against the slope from one scale to the next.

    Args:
        slope: Slope of the effect over log10 of the scale.
        effect: Mean over the scales.
        threshold: Value that the effect must pass.
        above: Whether the claim says that the effect lies above it.
        published: The source's value; NaN: none.
    """
    known = published == published
    within = FLAT * abs((published if known else effect) - threshold)
    if slope.value != slope.value:
        return ScaleTrend(word="undetermined", told="undetermined", flat_within=within, reason="too few scales")
    if slope.low != slope.low:
        return ScaleTrend(word="undetermined", told="undetermined", flat_within=within, reason="one seed")
    if -within < slope.low and slope.high < within:
        return ScaleTrend(word="flat", told="flat", flat_within=within)
    if slope.low <= 0 <= slope.high:
        reason = "the interval of the slope includes zero, and reaches beyond what counts as flat"
        return ScaleTrend(word="undetermined", told="undetermined", flat_within=within, reason=reason)
    if slope.turns:
        reason = f"no single direction: {slope.turns} the effect clearly moves the other way"
        return ScaleTrend(word="undetermined", told="undetermined", flat_within=within, reason=reason)
    word: Trend = "grows" if (slope.value > 0) == above else "falls"
    beyond = known and ((effect > published) == above) and effect != published
    return ScaleTrend(word=word, told=_with_direction(word, known, beyond), flat_within=within)


def _with_direction(word: Trend, known: bool, beyond: bool) -> str:
    if not known:
        return "grows the way the claim says" if word == "grows" else "falls against what the claim says"
    if beyond:
        return "grows beyond the published value" if word == "grows" else "falls back towards the published value"
    return "grows towards the published value" if word == "grows" else "falls away from the published value"
