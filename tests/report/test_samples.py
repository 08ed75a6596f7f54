import math

import numpy as np
import pandas as pd
import pytest
from report.drawn import chosen
from scipy import stats

from infoflow.findings import Condition, judge_all, resampled_curves
from infoflow.foundation import NUM_BLOCKS
from infoflow.results import Samples, ratio_estimate


def _rows(values, noise=0.1, seed=0, shared=None):
    generator = np.random.default_rng(seed)
    shared = generator.normal(0, noise, 200) if shared is None else shared
    return pd.DataFrame(
        {
            "seed": range(len(values)),
            "value": values,
            "low": [value - 2 * noise for value in values],
            "high": [value + 2 * noise for value in values],
            "count": 100,
            "replicates": [list(value + shared) for value in values],
        }
    )


def test_several_seeds_without_replicates_give_the_t_interval_of_their_mean():
    values = [5.1, 5.3, 4.9]
    estimate = Samples.of(_rows(values).drop(columns="replicates")).estimate()
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((np.mean(values), low, high))
    assert estimate.seeds == 3


@pytest.mark.parametrize("values", [[5.1, 5.3, 4.9], [2.0, 3.0]])
def test_figures_have_the_intervals_of_verdicts(values):
    samples = Samples.of(_rows(values))
    curves, plan = resampled_curves({"curve": samples}, list(range(len(values))))
    condition = Condition(name="", values=curves["curve"], labels=["x"], threshold=0.0, unit="")
    (outcome,) = judge_all([condition], plan)
    estimate = samples.estimate()
    assert (estimate.low, estimate.high) == pytest.approx((outcome.low, outcome.high))


def test_pairs_of_seeds_count_each_seed_once():
    """Three distances between three seeds say less about their mean than three seeds do."""
    rows = _rows([0.2, 0.3, 0.4], noise=1e-9).assign(pair=list("abc"), seed_a=[0, 0, 1], seed_b=[1, 2, 2])
    pairs, seeds = Samples.of(rows, "pair").estimate(), Samples.of(rows).estimate()
    assert pairs.high - pairs.low == pytest.approx(2 * (seeds.high - seeds.low))


def test_one_seed_keeps_the_interval_of_its_table():
    estimate = Samples.of(_rows([2.0])).estimate()
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((2.0, 1.8, 2.2))


def test_two_seeds_have_a_wide_interval():
    estimate = Samples.of(_rows([2.0, 3.0], noise=1e-9)).estimate()
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((2.5, 2.5 - 6.353, 2.5 + 6.353), abs=1e-3)


def test_a_value_that_was_not_measured_does_not_count():
    assert Samples.of(_rows([1.0, math.nan, 3.0])).estimate().seeds == 2


def test_a_difference_of_one_seed_is_paired_by_replicate():
    shared = np.random.default_rng(3).normal(0, 0.5, 200)
    difference = (Samples.of(_rows([2.0], shared=shared)) - Samples.of(_rows([1.0], shared=shared))).estimate()
    assert (difference.value, difference.low, difference.high) == pytest.approx((1.0, 1.0, 1.0))


def test_a_difference_of_seeds_is_paired_by_seed():
    left, right = _rows([5.0, 6.0, 7.0]), _rows([4.0, 5.0, 6.1]).iloc[::-1]
    difference = (Samples.of(left) - Samples.of(right)).estimate()
    assert difference.value == pytest.approx(np.mean([1.0, 1.0, 0.9]))
    assert difference.high - difference.low < 0.3


def test_only_shared_seeds_count_in_a_difference():
    assert (Samples.of(_rows([1.0, 2.0, 3.0])) - Samples.of(_rows([1.0]))).estimate().seeds == 1


def test_the_sign_is_zero_while_the_interval_holds_zero():
    assert Samples.of(_rows([0.1, -0.1, 0.05])).estimate().sign == 0
    assert Samples.of(_rows([-1.0, -1.1, -0.9])).estimate().sign == -1


def test_without_replicates_a_difference_has_no_interval():
    bare = _rows([2.0]).drop(columns="replicates")
    difference = (Samples.of(bare) - Samples.of(bare)).estimate()
    assert difference.value == 0
    assert not difference.has_interval
    assert math.isnan(difference.low)


def test_no_rows_are_no_number():
    assert not Samples.of(_rows([1.0]).head(0))
    assert math.isnan(Samples.of(_rows([1.0]).head(0)).estimate().value)


def test_the_best_of_many_equal_layers_is_told_as_good_as_any():
    """The number that chose it is .05 too high; the one that is told is not, and its interval holds the truth."""
    values, covered = [], 0
    for draw in range(60):
        generator = np.random.default_rng(draw)
        words = np.bincount(generator.integers(0, NUM_BLOCKS, 600), minlength=NUM_BLOCKS)
        right = [generator.binomial(words, 0.5) * 1.0 for _ in range(24)]
        rows = [ratio_estimate(one, words * 1.0, 0.1, scale="share") for one in right]
        found = chosen({layer: Samples.of(pd.DataFrame([row]), scale="share") for layer, row in enumerate(rows)})
        assert found is not None
        values.append((found.first, found.estimate.value))
        covered += found.estimate.low <= 0.5 <= found.estimate.high
    chose, told = np.mean(values, axis=0)
    assert chose > 0.54
    assert told == pytest.approx(0.5, abs=4 * 0.0289 / np.sqrt(60))
    assert covered >= 53
