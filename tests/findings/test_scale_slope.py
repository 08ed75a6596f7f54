"""Slopes over scale against an explicit regression, and the words that are made of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress, t

from infoflow.foundation import sentence_df
from infoflow.subjects.over_scale.claims import (
    FLAT,
    ScalePoint,
    ScaleSlope,
    course_slope,
    scale_groups,
    scale_slope,
    scale_trend,
)

DF = sentence_df(200)


def point(
    size: float, effect: float, seeds: int = 3, seed_error: float = 0.1, sentence_error: float = 0.05
) -> ScalePoint:
    """Of a linear statistic: its interval is Cochran's."""
    t_seeds, t_sentences = t.ppf(0.975, max(seeds - 1, 1)), t.ppf(0.975, DF)
    if seeds == 1:
        half, seed_error = t_sentences * sentence_error, float("nan")
    else:
        first, second = seed_error**2, sentence_error**2
        half = (t_seeds * first + t_sentences * second) / (np.sqrt(first + second) or 1.0)
    return ScalePoint(
        size=size,
        effect=effect,
        low=effect - half,
        high=effect + half,
        seeds=seeds,
        seed_error=seed_error,
        sentence_error=sentence_error,
    )


def slow_slope(points: list[ScalePoint]) -> tuple[float, float, float]:
    """Weighted least squares by its normal equations; variances, one source of chance after the other, by how far the
    slope moves when that source moves its points."""
    spreads = [(p.seeds, p.seeds * p.seed_error**2) for p in points if p.seeds > 1]
    freedom = sum(n - 1 for n, _ in spreads)
    spread = sum((n - 1) * v for n, v in spreads) / freedom
    weights = np.diag([1 / (spread / p.seeds + p.sentence_error**2) for p in points])
    design = np.array([[1.0, np.log10(p.size)] for p in points])
    solve = np.linalg.solve(design.T @ weights @ design, design.T @ weights)
    slope = float((solve @ [p.effect for p in points])[1])
    sources, alone = [], 0.0
    for place, one in enumerate(points):
        moved = np.zeros(len(points))
        moved[place] = 1.0
        by_one = float((solve @ moved)[1])
        sources.append((by_one**2 * one.sentence_error**2, DF))
        if one.seeds > 1:
            sources.append((by_one**2 * one.seed_error**2, one.seeds - 1))
        else:
            alone += by_one**2 * spread
    sources.append((alone, freedom))
    variance = sum(v for v, _ in sources)
    df = variance**2 / sum(v**2 / d for v, d in sources)
    half = t.ppf(0.975, df) * np.sqrt(variance)
    return slope, slope - half, slope + half


@pytest.mark.parametrize("seeds", [(3, 3, 3), (3, 1, 3), (5, 1, 1, 2), (2, 2, 2, 2, 2, 2)])
def test_agrees_with_an_explicit_regression(seeds):
    rng = np.random.default_rng(len(seeds))
    points = [
        point(
            3e5 * 10 ** (place / 2),
            float(rng.normal()),
            n,
            float(rng.uniform(0.05, 0.3)),
            float(rng.uniform(0.01, 0.2)),
        )
        for place, n in enumerate(seeds)
    ]
    found = scale_slope(points)
    assert (found.value, found.low, found.high) == pytest.approx(slow_slope(points), rel=1e-9)
    assert found.method == "intervals"


def test_without_several_seeds_it_is_the_textbooks_regression():
    effects = [0.1, 0.5, 0.4, 1.1]
    points = [point(10.0**k, effect, seeds=1) for k, effect in enumerate(effects)]
    found, expected = scale_slope(points), linregress(range(4), effects)
    half = t.ppf(0.975, 2) * expected.stderr
    assert found.method == "residuals"
    assert (found.value, found.low) == pytest.approx((expected.slope, expected.slope - half))


@given(order=st.permutations(range(5)))
def test_the_order_of_runs_does_not_matter(order):
    points = [point(10.0 ** (5 + k / 2), effect) for k, effect in enumerate((0.1, 0.3, 0.2, 0.6, 0.7))]
    assert scale_slope([points[k] for k in order]) == scale_slope(points)


@given(shift=st.floats(-5, 5), stretch=st.floats(0.1, 10))
def test_shifted_effects_have_the_same_slope_and_stretched_ones_a_stretched_one(shift, stretch):
    effects = (0.1, 0.3, 0.2)
    plain = scale_slope([point(10.0**k, effect) for k, effect in enumerate(effects)])
    other = scale_slope(
        [point(10.0**k, stretch * effect + shift, 3, stretch * 0.1, stretch * 0.05) for k, effect in enumerate(effects)]
    )
    assert other.value == pytest.approx(stretch * plain.value)
    assert other.high - other.low == pytest.approx(stretch * (plain.high - plain.low))


def test_a_wider_interval_than_its_errors_say_counts_as_it_is():
    narrow = [point(10.0**k, 0.1 * k) for k in range(3)]
    wide = [
        ScalePoint(
            size=p.size, effect=p.effect, low=4 * p.low - 3 * p.effect, high=4 * p.high - 3 * p.effect, seeds=p.seeds,
            seed_error=p.seed_error, sentence_error=p.sentence_error,
        )
        for p in narrow
    ]  # fmt: skip
    one, other = scale_slope(narrow), scale_slope(wide)
    assert other.high - other.low == pytest.approx(4 * (one.high - one.low))


def test_fewer_than_three_scales_have_no_slope():
    assert np.isnan(scale_slope([point(1e5, 0.1), point(1e6, 0.3), point(1.1e6, 0.2)]).value)
    assert scale_groups([3.0, 1.0, 1.2, 10.0]) == [1, 0, 0, 2]


def test_points_that_chance_does_not_move():
    found = scale_slope([point(10.0**k, 0.5, 3, 0.0, 0.0) for k in range(3)])
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_checkpoints_give_one_slope_a_seed():
    effects = np.array([[0.1, 0.2, 0.0], [0.3, 0.5, 0.2], [0.6, 0.7, 0.3]])
    found = course_slope([1e5, 1e6, 1e7], effects.tolist())
    slopes = [np.polyfit([5, 6, 7], own, 1)[0] for own in effects.T]
    half = t.ppf(0.975, 2) * np.std(slopes, ddof=1) / np.sqrt(3)
    assert (found.value, found.low) == pytest.approx((np.mean(slopes), np.mean(slopes) - half))
    twice = course_slope([1e5, 1e5 * 1.001, 1e6, 1e6 * 1.001, 1e7, 1e7 * 1.001], np.repeat(effects, 2, axis=0).tolist())
    assert twice.high - twice.low == pytest.approx(found.high - found.low, rel=0.01)  # more checkpoints, not surer


def test_checkpoints_of_one_seed_have_no_interval():
    assert np.isnan(course_slope([1e5, 1e6, 1e7], [[0.1], [0.2], [0.5]]).low)
    assert np.isnan(course_slope([1e5, 1e6, 1e7], [[0.1], [0.2], [0.5, 0.6]]).value)


def slope(value: float, half: float, turns: str = "") -> ScaleSlope:
    return ScaleSlope(value=value, low=value - half, high=value + half, fit=1.0, method="intervals", turns=turns)


@pytest.mark.parametrize(
    ("found", "effect", "above", "published", "word", "told"),
    [
        (slope(0.5, 0.2), 0.5, True, 1.0, "grows", "grows towards the published value"),
        (slope(-0.5, 0.2), 0.5, True, 1.0, "falls", "falls away from the published value"),
        (slope(-0.5, 0.2), -0.5, False, -1.0, "grows", "grows towards the published value"),
        (slope(0.5, 0.2), 1.5, True, 1.0, "grows", "grows beyond the published value"),
        (slope(-0.5, 0.2), 1.5, True, 1.0, "falls", "falls back towards the published value"),
        (slope(0.5, 0.2), 0.5, True, float("nan"), "grows", "grows the way the claim says"),
        (slope(0.5, 0.2), 0.5, False, float("nan"), "falls", "falls against what the claim says"),
        (slope(0.5, 0.6), 0.5, True, 1.0, "undetermined", "undetermined"),
        (slope(0.05, 0.04), 0.5, True, 1.0, "flat", "flat"),
        (slope(0.05, 0.04), 0.01, True, float("nan"), "grows", "grows the way the claim says"),
        (slope(0.5, 0.2, turns="from 1 to 2"), 0.5, True, 1.0, "undetermined", "undetermined"),
        (slope(float("nan"), 0.2), 0.5, True, 1.0, "undetermined", "undetermined"),
    ],
)
def test_words(found, effect, above, published, word, told):
    trend = scale_trend(found, effect=effect, threshold=0.0, above=above, published=published)
    assert (trend.word, trend.told) == (word, told)
    distance = abs(effect) if np.isnan(published) else abs(published)
    assert trend.flat_within == pytest.approx(FLAT * distance)


def test_known_slopes_give_known_words():
    courses = {"grows": (0.2, 0.6, 1.0), "falls": (1.0, 0.6, 0.2), "flat": (0.6, 0.61, 0.6)}
    for word, effects in courses.items():
        found = scale_slope([point(10.0**k, effect, 3, 0.01, 0.01) for k, effect in enumerate(effects)])
        assert scale_trend(found, effect=0.6, threshold=0.0, above=True, published=1.0).word == word


def test_a_step_that_goes_the_other_way_leaves_it_undetermined():
    zigzag = [point(10.0**k, effect, 3, 0.01, 0.01) for k, effect in enumerate((0.0, 2.0, 1.0))]
    found = scale_slope(zigzag)
    assert found.low > 0
    assert found.turns == "from 10 to 100"
    assert scale_trend(found, effect=1.0, threshold=0.0, above=True).word == "undetermined"
    assert found.fit > 10
