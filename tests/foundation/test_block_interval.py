"""Intervals from the effects of blocks: formulas, range, what they cover."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from infoflow.foundation import (
    NUM_BLOCKS,
    NUM_REPLICATES,
    block_effects,
    block_interval,
    interval,
    on_halves,
    replicate_weights,
)

WEIGHTS = replicate_weights()


def sums_of(rng, numerators, denominators):
    """Sentences thrown into blocks at random."""
    blocks = rng.integers(0, NUM_BLOCKS, len(denominators))
    return [np.bincount(blocks, values, NUM_BLOCKS) for values in (numerators, denominators)]


def of_ratio(above, below):
    """Value and replicates of a ratio of sums."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return above.sum() / below.sum(), (WEIGHTS @ above) / (WEIGHTS @ below)


def test_effects_of_a_linear_statistic_are_read_off_its_replicates():
    effects = np.random.default_rng(0).normal(size=NUM_BLOCKS)
    effects -= effects.mean()
    replicates = 3.0 + (WEIGHTS - 1) @ effects
    np.testing.assert_allclose(block_effects(3.0, replicates), effects, atol=1e-12)
    replicates[:40] = np.nan
    np.testing.assert_allclose(block_effects(3.0, replicates), effects, atol=1e-9)


def test_effects_of_a_ratio_are_its_linearisation():
    rng = np.random.default_rng(1)
    lengths = rng.integers(5, 9, 20_000)
    above, below = sums_of(rng, lengths * rng.normal(1, 1, len(lengths)), lengths)
    value, replicates = of_ratio(above, below)
    expected = (above - value * below) / below.sum()
    np.testing.assert_allclose(block_effects(value, replicates), expected, atol=0.05 * np.abs(expected).max())


def test_without_skewness_it_is_students():
    half = np.random.default_rng(2).normal(size=NUM_BLOCKS // 2)
    effects = np.concatenate([half, -half])
    spread = student.ppf(0.975, 63) * math.sqrt(64 / 63 * (effects**2).sum())
    assert block_interval(1.0, effects) == pytest.approx((1 - spread, 1 + spread))
    few = np.zeros(NUM_BLOCKS)
    few[:4] = [1, -1, 2, -2]
    spread = student.ppf(0.975, 3) * math.sqrt(4 / 3 * 10)
    assert block_interval(0.0, few) == pytest.approx((-spread, spread))


@given(st.lists(st.floats(-5, 5), min_size=12, max_size=64))
def test_ends_solve_halls_cubic(values):
    """g(T) = T + aT²/3 + a²T³/27 + a/6 of T = (value − end) / s is Student's quantile at either end."""
    effects = np.array(values) - np.mean(values)
    if (effects**2).sum() < 1e-6:
        return
    units, skewness = len(effects), (effects**3).sum() / (effects**2).sum() ** 1.5
    spread, quantile = math.sqrt(units / (units - 1) * (effects**2).sum()), student.ppf(0.975, units - 1)
    for end, expected in zip(block_interval(0.0, effects, units=units), (quantile, -quantile), strict=True):
        x = -end / spread
        assert x + skewness * x**2 / 3 + skewness**2 * x**3 / 27 + skewness / 6 == pytest.approx(expected, abs=1e-6)


@given(st.floats(0.001, 0.999), st.floats(1e-3, 0.3))
def test_a_share_solves_wilsons_equation(value, spread):
    effects = np.tile([spread / 8, -spread / 8], NUM_BLOCKS // 2)
    low, high = block_interval(value, effects, scale="share")
    independent = value * (1 - value) / (64 / 63 * (effects**2).sum())
    assert 0 <= low <= value <= high <= 1
    for end in (low, high):
        distance = student.ppf(0.975, 63) * math.sqrt(end * (1 - end) / independent)
        assert abs(value - end) == pytest.approx(distance, rel=1e-6, abs=1e-9)


def test_a_share_of_which_all_observations_agree_is_not_certain():
    low, high = block_interval(1.0, np.zeros(NUM_BLOCKS), units=20, scale="share", count=30)
    assert high == 1
    assert low == pytest.approx(1 / (1 + student.ppf(0.975, 19) ** 2 / 30))


def test_rounding_does_not_make_a_share_certain():
    """A share of one half in every block, by weights of attention that are rounded."""
    rounded = 1e-17 * np.random.default_rng(0).normal(size=NUM_BLOCKS)
    settings = {"units": 20, "scale": "share", "count": 30}
    assert block_interval(0.5, rounded, **settings) == block_interval(0.5, np.zeros(NUM_BLOCKS), **settings)


def test_nothing_positive_falls_below_zero():
    effects = np.zeros(NUM_BLOCKS)
    effects[0], effects[1:] = 1, -1 / 63
    assert block_interval(0.5, effects).low < 0
    assert block_interval(0.5, effects, scale="positive").low == 0


def test_one_unit_gives_no_interval_and_a_constant_a_point():
    assert np.isnan(block_interval(2.0, np.zeros(NUM_BLOCKS), units=1)).all()
    assert block_interval(2.0, np.zeros(NUM_BLOCKS)) == (2.0, 2.0)
    assert np.isnan(block_interval(math.nan, np.zeros(NUM_BLOCKS))).all()
    assert np.isnan(block_interval(2.0, block_effects(2.0, np.full(200, np.nan)))).all()


def normal(rng, num):
    lengths = rng.integers(3, 20, num)
    return lengths + np.sqrt(lengths) * rng.normal(size=num), lengths


def skewed(rng, num):
    return rng.lognormal(0, 1, num), np.ones(num)


def frequent(rng, num):
    """Hits of a share of 0.98, a token a sentence, that go together within a sentence."""
    lengths = rng.poisson(1.0, num)
    return rng.binomial(lengths, rng.beta(0.98 * 7 / 3, 0.02 * 7 / 3, num)), lengths


CASES = {
    "ratio": (normal, 300, 1.0, "any", (0.94, 0.965)),
    "skewed": (skewed, 40, math.exp(0.5), "positive", (0.9, 0.965)),
    "share": (frequent, 300, 0.98, "share", (0.93, 0.98)),
}


@pytest.mark.parametrize("name", CASES)
def test_coverage_of_2000_samples(name):
    """Percentiles of the replicates, whose short tails and noise they replace, stay below these bounds."""
    draw, num, truth, scale, (least, most) = CASES[name]
    rng, hits = np.random.default_rng(3), np.zeros((2000, 2))
    for each in range(len(hits)):
        above, below = sums_of(rng, *draw(rng, num))
        value, replicates = of_ratio(above, below)
        found = block_interval(value, block_effects(value, replicates), scale=scale, count=below.sum())
        for column, (low, high) in enumerate((found, interval(replicates))):
            hits[each, column] = low <= truth <= high
    own, percentile = hits.mean(axis=0)
    assert least <= own <= most
    assert percentile < least


def test_halves_of_what_was_not_measured_are_unknown_without_a_warning() -> None:
    nothing, some = np.full(NUM_REPLICATES, np.nan), replicate_weights() @ np.ones(NUM_BLOCKS)
    found = on_halves(np.array([np.nan, 1.0]), [some, nothing])
    assert np.isnan([found.first, found.second]).all()


@pytest.mark.parametrize("value", [0.0, 1.0, 0.031272, 1 / 3])
@pytest.mark.parametrize("digits", [5, 20], ids=["as stored", "in memory"])
def test_a_statistic_that_is_the_same_in_every_block_is_the_same_on_both_halves(value, digits) -> None:
    replicates = np.round(value * (1 + np.resize([1e-15, -1e-15, 0], NUM_REPLICATES)), digits)
    found = on_halves(np.array([value]), [replicates])
    assert [found.first[0], found.second[0]] == pytest.approx([value, value])
