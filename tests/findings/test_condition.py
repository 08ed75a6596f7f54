"""Intervals and verdicts of conditions on all or any of several numbers."""

import numpy as np
import pytest

from infoflow.findings import SHARE, Condition, judge_all, largest_t, plan_rows, resampled_curves
from infoflow.foundation import sentence_df, stream
from infoflow.results import Samples

NUM = 50


def make(values, *, threshold=0.0, side="above", over="all", noise=0.0, key=0, **more):
    """A condition of one seed around `values`, with replicates of standard deviation `noise`."""
    estimate = np.atleast_2d(np.asarray(values, dtype=float))
    draws = stream("draws", key).standard_normal((NUM, estimate.shape[1]))
    draws = noise * (draws - draws.mean(axis=0)) / draws.std(axis=0, ddof=1)
    panel = Samples.of_units({(0,): np.concatenate([estimate, estimate + draws])})
    return Condition(
        name="margin",
        values=resampled_curves({"": panel}, [0])[0][""],
        labels=[f"layer {layer}" for layer in range(estimate.shape[1])],
        threshold=threshold,
        unit="nats",
        side=side,
        over=over,
        **more,
    )


def judged(condition):
    return judge_all([condition], plan_rows(1, NUM))[0]


def interval_by_loops(condition, noise):
    """The docstring of `judge`, column by column, for a claim above its threshold."""
    sign = 1 if condition.over == "all" else -1  # a claim on any column, upside down, is one on all
    values = [sign * value for value in condition.values[0]]
    half = largest_t(1, sentence_df(NUM)) * noise
    weakest = min(values)
    rivals = sum(value - half <= weakest + half for value in values)
    open_ones = sum(value - half <= 0 for value in values)
    shared = largest_t(max(rivals, open_ones, 1), sentence_df(NUM)) * noise
    ends = min(value - half for value in values), weakest + shared
    return ends if sign == 1 else (-ends[1], -ends[0])


@pytest.mark.parametrize("over", ["all", "any"])
@pytest.mark.parametrize("values", [[0.3], [0.5, 0.2, 0.4], [-1.0, 0.0, 1.0, 2.0]])
def test_interval_agrees_with_loops(over, values):
    condition = make(values, over=over, noise=0.1, key=len(values))
    outcome = judged(condition)
    assert (outcome.low, outcome.high) == pytest.approx(interval_by_loops(condition, 0.1))
    assert outcome.effect == (min if over == "all" else max)(values)


@pytest.mark.parametrize("over", ["all", "any"])
def test_below_is_the_mirror_image_of_above(over):
    above = judged(make([0.5, 0.2], threshold=0.1, over=over, noise=0.3))
    condition = make([0.5, 0.2], threshold=0.1, over=over, noise=0.3)
    mirror = type(condition)(
        name="margin",
        values=-condition.values,
        labels=condition.labels,
        threshold=-0.1,
        unit="nats",
        side="below",
        over=over,
    )
    below = judged(mirror)
    assert (below.low, below.effect, below.high) == pytest.approx((-above.high, -above.effect, -above.low))
    assert below.verdict == above.verdict


@pytest.mark.parametrize(
    ("values", "over", "verdict"),
    [
        ([1.0, 1.0], "all", "holds"),
        ([1.0, -1.0], "all", "fails"),
        ([1.0, 0.1], "all", "undetermined"),
        ([1.0, -1.0], "any", "holds"),
        ([-1.0, -1.0], "any", "fails"),
        ([0.1, -1.0], "any", "undetermined"),
    ],
)
def test_verdicts(values, over, verdict):
    assert judged(make(values, over=over, noise=0.15)).verdict == verdict


def test_interval_that_touches_the_threshold_decides_nothing():
    assert judged(make([0.0], noise=0.0)).verdict == "undetermined"


def test_weakest_layer_is_named_and_seeds_are_listed():
    outcome = judged(make([0.5, 0.2, 0.4]))
    assert outcome.effects == pytest.approx([0.2])
    assert str(outcome) == "margin: 0.2 (0.2 to 0.2) nats at layer 1; needed > 0"


def test_undefined_number_decides_nothing():
    outcome = judged(make([np.nan, np.nan]))
    assert outcome.verdict == "undetermined"
    assert "undefined; needed" in str(outcome)


def test_weakest_condition_comes_first():
    conditions = [make([9.0], noise=1.0), make([-9.0], noise=1.0), make([0.1], noise=1.0), make([5.0], noise=1.0)]
    outcomes = [judged(condition) for condition in conditions]
    ordered = sorted(outcomes, key=lambda outcome: outcome.strength)
    assert [outcome.effect for outcome in ordered] == [-9.0, 0.1, 5.0, 9.0]


@pytest.mark.parametrize(("truth", "wrong"), [(0.5, "fails"), (0.0, "holds"), (-0.5, "holds")])
def test_error_rates_over_six_layers(truth, wrong):
    """A claim true by half a standard error at each layer is rarely refuted, a false one rarely confirmed."""
    mistakes = 0
    for trial in range(200):
        estimate = truth + stream("error-rate", trial).standard_normal(6)
        mistakes += judged(make(estimate, noise=1.0, key=trial)).verdict == wrong
    assert mistakes / 200 <= 0.05


def test_layers_that_clearly_pass_do_not_protect_the_one_that_fails():
    alone, among = (judged(make([-0.1, *[5.0] * others], noise=0.04)).high for others in (0, 30))
    assert among == pytest.approx(alone)


def test_an_interval_of_shares_stays_within_0_and_1():
    free, bound = (judged(make([0.6], threshold=0.5, noise=0.5, bounds=bounds)) for bounds in (None, SHARE))
    assert (free.low < 0, free.high > 1) == (True, True)
    assert (bound.low, bound.high) == (0.0, 1.0)
    assert free.verdict == bound.verdict == "undetermined"


@pytest.mark.parametrize(("noise", "low", "high"), [(0.0, 0.5, 1.0), (1.0, -1.29, 2.79)])
def test_values_off_a_grid_are_known_to_a_step(noise, low, high):
    """Replicates that agree to the step say nothing of where between two steps the value lies."""
    outcome = judged(make([0.75], noise=noise, step=0.25, threshold=0.6))
    assert outcome.low == pytest.approx(low, abs=0.1)
    assert outcome.high == pytest.approx(high, abs=0.1)
    assert outcome.verdict == "undetermined"
    assert judged(make([0.9], noise=0.0, step=0.25, threshold=0.6)).verdict == "holds"


def test_near_the_bound_of_a_share_the_interval_reaches_inwards_as_wilsons():
    """A plain interval around .97 of what cannot exceed 1 claims too much."""
    plain, share = (judged(make([0.97], threshold=0.9, noise=0.02, **more)) for more in ({}, {"bounds": (0.0, 1.0)}))
    assert share.low < plain.low
    assert share.high == 1
    assert (plain.verdict, share.verdict) == ("holds", "undetermined")
