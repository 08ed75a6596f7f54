"""Intervals over few seeds: against formulas, and how often they cover what is true."""

import numpy as np
import pytest
from scipy import stats

from infoflow.findings import Condition, depth_correlation, judge_all, largest_t
from infoflow.foundation import stream

from .test_resampled import make_panel, random_panel, rows_of

FEW = (2, 3, 5)


def judged(panel, statistic=lambda curves: curves[:, :1], redraw=0, **how):
    curves, rows = rows_of(panel, redraw=redraw)
    values = statistic(curves)
    labels = [str(column) for column in range(values.shape[1])]
    how = {"threshold": 0.0, **how}
    return judge_all([Condition(name="", values=values, labels=labels, unit="", **how)], rows)[0]


def simulated(rng, num_seeds, by_seed, by_sentence, truth):
    """Seeds of their own, sentences that move all seeds together and as much again each apart."""
    truth = np.atleast_1d(np.asarray(truth, dtype=float))
    blocks = rng.normal(size=(1, 64, len(truth))) + rng.normal(size=(num_seeds, 64, len(truth)))
    noise = by_sentence * 8 / np.sqrt(2) * blocks
    weights = rng.multinomial(64, np.full(64, 1 / 64), 200) / 64
    exact = truth + by_seed * rng.normal(size=(num_seeds, len(truth)))
    units = [(seed,) for seed in range(num_seeds)]
    return make_panel(units, exact + noise.mean(axis=1), exact[:, None] + weights @ noise)


def coverage(statistic, truth, num_seeds, by_seed, by_sentence, curve, trials, **how):
    rng = stream("coverage", num_seeds, str(by_seed), str(by_sentence))
    outcomes = [
        judged(simulated(rng, num_seeds, by_seed, by_sentence, curve), statistic, threshold=truth, **how)
        for _ in range(trials)
    ]
    covered = np.mean([one.low - 1e-9 <= truth <= one.high + 1e-9 for one in outcomes])
    return covered, np.mean([one.verdict == "holds" for one in outcomes])


@pytest.mark.parametrize("num_seeds", FEW)
def test_seeds_alone_give_the_t_interval(num_seeds):
    units = [(seed,) for seed in range(num_seeds)]
    values = np.random.default_rng(num_seeds).normal(size=(num_seeds, 1))
    outcome = judged(make_panel(units, values, np.repeat(values[:, None], 50, axis=1)))
    expected = stats.t.interval(0.95, num_seeds - 1, loc=values.mean(), scale=stats.sem(values)[0])
    assert (outcome.low, outcome.high) == pytest.approx(expected)
    assert outcome.covers_seeds


def test_one_seed_gives_the_t_interval_of_its_replicates():
    panel = random_panel([(3,)], num_replicates=200)
    outcome = judged(panel)
    half = stats.t.ppf(0.975, 1 / (1 / 63 + 1 / 199)) * panel.replicates_URK[0, :, 0].std(ddof=1)
    value = panel.values_UK[0, 0]
    assert (outcome.low, outcome.high) == pytest.approx((value - half, value + half))
    assert not outcome.covers_seeds


def test_sentences_that_move_all_seeds_are_joined_with_the_seeds():
    """Cochran's rule, written out."""
    rng = np.random.default_rng(0)
    values, shared = rng.normal(size=(3, 1)), rng.normal(size=(1, 200, 1))
    outcome = judged(make_panel([(0,), (1,), (2,)], values, values[:, None] + shared))
    first, second = values.var(ddof=1) / 3, shared.var(ddof=1)
    t_first, t_second = stats.t.ppf(0.975, 2), stats.t.ppf(0.975, 1 / (1 / 63 + 1 / 199))
    half = (t_first * first + t_second * second) / np.sqrt(first + second)
    assert (outcome.low, outcome.high) == pytest.approx((values.mean() - half, values.mean() + half))


def test_sentences_that_move_each_seed_apart_are_not_counted_twice():
    rng = np.random.default_rng(1)
    values, apart = rng.normal(size=(4, 1)), 0.1 * rng.normal(size=(4, 2000, 1))
    units = [(seed,) for seed in range(4)]
    joined = judged(make_panel(units, values, values[:, None] + apart))
    alone = judged(make_panel(units, values, np.repeat(values[:, None], 2000, axis=1)))
    assert joined.high - joined.low == pytest.approx(alone.high - alone.low, rel=0.01)


def test_a_ratio_has_nearly_fieller_s_interval():
    """Ends are the ratios q at which the mean of x − q y is one t quantile of standard errors from 0."""
    values = np.array([[4.1, 2.0], [3.6, 2.2], [4.4, 1.9], [4.0, 2.3]])
    units = [(seed,) for seed in range(4)]
    panel = make_panel(units, values, np.repeat(values[:, None], 50, axis=1))
    outcome = judged(panel, lambda curves: curves[:, :1] / curves[:, 1:])

    def distance(q):
        difference = values[:, 0] - q * values[:, 1]
        return abs(difference.mean()) / stats.sem(difference)

    assert distance(outcome.low) == pytest.approx(stats.t.ppf(0.975, 3), rel=0.1)
    assert distance(outcome.high) == pytest.approx(stats.t.ppf(0.975, 3), rel=0.1)


@pytest.mark.parametrize("num", [1, 2, 10])
@pytest.mark.parametrize("df", [2, 48])
def test_quantile_of_the_largest_agrees_with_simulation(num, df):
    rng = np.random.default_rng(df)
    largest = rng.normal(size=(200_000, num)).max(axis=1) / np.sqrt(rng.chisquare(df, 200_000) / df)
    assert np.mean(largest > largest_t(num, df)) == pytest.approx(0.025, abs=0.0015)


@pytest.mark.parametrize("num_seeds", FEW)
@pytest.mark.parametrize(("by_seed", "by_sentence"), [(1.0, 0.1), (0.3, 0.3), (0.1, 1.0)])
def test_interval_of_a_fall_covers_it(num_seeds, by_seed, by_sentence):
    """The percentile interval of a bootstrap over seeds covered .61, .78 and .86 where seeds differ most."""
    covered, holds = coverage(
        lambda curves: curves[:, :1] - curves[:, -1:], 1.0, num_seeds, by_seed, by_sentence, [3.0, 2.0], trials=150
    )
    assert covered >= 0.91
    assert holds <= 0.06


def test_interval_of_the_weakest_layer_covers_it():
    covered, holds = coverage(lambda curves: curves, 1.0, 3, 0.3, 0.1, [1.0, 1.05, 1.1, 2.0, 3.0, 3.0], trials=120)
    assert covered >= 0.92
    assert holds <= 0.05


def test_interval_of_a_rank_correlation_allows_for_near_ties():
    curve = [1.0, 2.0, 3.0, 3.05, 3.1, 4.0, 5.0]
    covered, _ = coverage(depth_correlation, 1.0, 3, 0.2, 0.1, curve, trials=120, bounds=(-1.0, 1.0))
    assert covered >= 0.91


def test_distances_between_seeds_are_no_surer_than_the_seeds():
    """Three distances made of three seeds, d(a, b) = x_a + x_b: their mean is twice the mean of x."""
    own = np.array([0.3, 0.5, 0.1])
    pairs = [(0, 1), (0, 2), (1, 2)]
    values = np.array([[own[a] + own[b]] for a, b in pairs])
    outcome = judged(make_panel(pairs, values, np.repeat(values[:, None], 50, axis=1)))
    low, high = stats.t.interval(0.95, 2, loc=own.mean(), scale=stats.sem(own))
    assert (outcome.low, outcome.high) == pytest.approx((2 * low, 2 * high))


def test_one_distance_says_nothing_about_seeds():
    assert not judged(random_panel([(0, 1)], num_replicates=50)).covers_seeds


def test_a_share_on_which_all_seeds_agree_is_no_surer_than_as_many_trials():
    values = np.zeros((3, 1))
    panel = make_panel([(0,), (1,), (2,)], values, np.zeros((3, 50, 1)))
    outcome = judged(panel, threshold=0.5, side="below", bounds=(0.0, 1.0), of=48)
    expected = stats.binomtest(0, 144).proportion_ci(method="wilson")
    assert (outcome.low, outcome.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("num_seeds", [1, 3])
def test_verdicts_stand_when_the_bootstrap_is_redrawn(num_seeds):
    """Sixteen other streams of draws and as many of replicates; the effect lies three standard errors from 0."""
    rng = stream("redrawn", num_seeds)
    blocks = rng.normal(size=(num_seeds, 64, 2)) + rng.normal(size=(1, 64, 2))
    blocks -= blocks.mean(axis=1, keepdims=True)
    blocks *= 1 / np.sqrt((blocks.mean(axis=0)[:, 0] - blocks.mean(axis=0)[:, 1]).var() / 64)
    exact = np.array([[3.0, 0.0]]) + np.linspace(-0.05, 0.05, num_seeds)[:, None] * [1.0, -1.0]
    units = [(seed,) for seed in range(num_seeds)]
    verdicts, lows = set(), []
    for index in range(16):
        weights = stream("redrawn weights", index).multinomial(64, np.full(64, 1 / 64), 200) / 64
        panel = make_panel(units, exact, exact[:, None] + weights @ blocks)
        outcome = judged(panel, lambda curves: curves[:, :1] - curves[:, 1:], redraw=index)
        verdicts.add(outcome.verdict)
        lows.append(outcome.low)
    assert verdicts == {"holds"}
    assert np.std(lows) < 0.2
