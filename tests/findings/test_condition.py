"""Intervals and verdicts of conditions on all or any of several numbers."""

import numpy as np
import pytest


def make(values, *, threshold=0.0, side="above", over="all", num_draws=400, noise=0.0, key=0):
    """A condition of two seeds around `values`."""
    from infoflow.findings import Condition
    from infoflow.foundation import stream

    estimate = np.atleast_2d(np.asarray(values, dtype=float))
    draws = estimate + noise * stream("draws", key).standard_normal((num_draws, estimate.shape[1]))
    return Condition(
        name="margin",
        values=np.concatenate([estimate, estimate - 0.1, estimate + 0.1, draws]),
        labels=[f"layer {layer}" for layer in range(estimate.shape[1])],
        threshold=threshold,
        unit="nats",
        side=side,
        over=over,
    )


def judged(condition):
    from infoflow.findings._evaluate import judge_all

    return judge_all([condition], 2)[0]


def percentile(values, share):
    """Linear interpolation between order statistics, written out."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def interval_by_loops(condition):
    """The docstring of `judge`, column by column, for a claim above its threshold."""
    columns = condition.values[3:].T
    single, shared = 0.025, 0.025 / len(columns)
    low_tail, high_tail = (single, shared) if condition.over == "all" else (shared, single)
    lows, highs = [], []
    for estimate, column in zip(condition.values[0], columns, strict=True):
        lows.append(min(percentile(column, low_tail), estimate))
        highs.append(max(percentile(column, 1 - high_tail), estimate))
    worst = min if condition.over == "all" else max
    return worst(lows), worst(highs)


@pytest.mark.parametrize("over", ["all", "any"])
@pytest.mark.parametrize("values", [[0.3], [0.5, 0.2, 0.4], [-1.0, 0.0, 1.0, 2.0]])
def test_interval_agrees_with_loops(over, values):
    condition = make(values, over=over, noise=0.5, key=len(values))
    outcome = judged(condition)
    assert (outcome.low, outcome.high) == pytest.approx(interval_by_loops(condition))
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
    assert outcome.effects == pytest.approx([0.1, 0.3])
    assert str(outcome) == "margin: 0.2 (0.2 to 0.2) nats at layer 1; needed > 0"


def test_undefined_number_decides_nothing():
    outcome = judged(make([np.nan, np.nan]))
    assert outcome.verdict == "undetermined"
    assert "undefined" in str(outcome)


def test_weakest_condition_comes_first():
    conditions = [make([9.0], noise=1.0), make([-9.0], noise=1.0), make([0.1], noise=1.0), make([5.0], noise=1.0)]
    outcomes = [judged(condition) for condition in conditions]
    ordered = sorted(outcomes, key=lambda outcome: outcome.strength)
    assert [outcome.effect for outcome in ordered] == [-9.0, 0.1, 5.0, 9.0]


@pytest.mark.parametrize(("truth", "wrong"), [(0.5, "fails"), (0.0, "holds"), (-0.5, "holds")])
def test_error_rates_over_six_layers(truth, wrong):
    """A claim true by half a standard error at each layer is rarely refuted, a false one rarely confirmed."""
    from infoflow.findings import Condition
    from infoflow.foundation import stream

    mistakes = 0
    for trial in range(200):
        rng = stream("error-rate", trial)
        estimate = truth + rng.standard_normal((1, 6))
        draws = estimate + rng.standard_normal((400, 6))
        values = np.concatenate([estimate, estimate, estimate, draws])
        condition = Condition(name="", values=values, labels=list("abcdef"), threshold=0.0, unit="")
        mistakes += judged(condition).verdict == wrong
    assert mistakes / 200 <= 0.05


def test_an_interval_of_proportions_stays_within_0_and_1():
    from infoflow.findings import Condition

    draws = np.linspace(-0.3, 1.2, 200)[:, None]
    values = np.concatenate([[[0.6]], [[0.5], [0.7]], draws])
    outcomes = [
        judged(Condition(name="", values=values, labels=["x"], threshold=0.5, unit="share", proportion=proportion))
        for proportion in (False, True)
    ]
    assert (outcomes[0].low < 0, outcomes[0].high > 1) == (True, True)
    assert (outcomes[1].low, outcomes[1].high) == (0.0, 1.0)
    assert outcomes[0].verdict == outcomes[1].verdict == "undetermined"
