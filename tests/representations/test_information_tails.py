"""Zipf tails: draws from known joint distributions, whose information intervals must hold."""

import numpy as np
import pytest
import torch

from infoflow.foundation import block_effects, block_interval, block_of
from infoflow.representations import HalvedClusters, cluster, corrected_information, estimate_information, nearest

TYPES, CLUSTERS, TOKENS, DRAWS = 1000, 100, 10_000, 12


def joint(noise):
    """Types by Zipf's law; each type's states fall into clusters by distance, five in a hundred anywhere."""
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, TYPES + 1)
    types, centres = rng.standard_normal((TYPES, 8)), rng.standard_normal((CLUSTERS, 8))
    squares = ((types[:, None] - centres) ** 2).sum(-1)
    given_type = np.exp(-(squares - squares.min(1, keepdims=True)) / (2 * noise**2))
    given_type = 0.95 * given_type / given_type.sum(1, keepdims=True) + 0.05 / CLUSTERS
    return given_type * (shares / shares.sum())[:, None]


def information(table):
    return entropy_of(table.sum(0)) + entropy_of(table.sum(1)) - entropy_of(table.ravel())


def entropy_of(shares):
    return -(shares * np.log(shares)).sum()


@pytest.fixture(scope="module")
def draws():
    """Of each draw the estimates at a low and at a high layer, which read the same tokens."""
    low, high = joint(0.4), joint(1.2)
    marginal = low.sum(1)
    found = []
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        types = rng.choice(TYPES, TOKENS, p=marginal / marginal.sum())
        blocks = block_of(np.arange(TOKENS) // 8 + 10_000 * seed)
        of_layers = []
        for table in (low, high):
            steps = (table / table.sum(1, keepdims=True)).cumsum(1)
            clusters = (rng.random((TOKENS, 1)) > steps[types]).sum(1).clip(max=CLUSTERS - 1)
            of_layers.append(estimate_information(clusters, types, blocks))
        found.append(of_layers)
    return (information(low), information(high)), found


def test_intervals_hold_the_truth(draws):
    truths, found = draws
    for truth, estimates in zip(truths, zip(*found, strict=True), strict=True):
        ends = [each.columns(0.0, TOKENS) for each in estimates]
        assert np.mean([each["low"] <= truth <= each["high"] for each in ends]) >= 0.9
        # The bias is real: what covers is no accident of wide intervals around the right value.
        assert np.mean([each.value for each in estimates]) - truth > 0.03


def test_intervals_of_a_fall_hold_the_truth(draws):
    (low, high), found = draws
    held = []
    for first, second in found:
        a, b = (np.array(each.columns(0.0, TOKENS)["replicates"]) for each in (first, second))
        fall = first.value - second.value
        ends = block_interval(fall, block_effects(fall, a - b))
        held.append(ends.low <= low - high <= ends.high)
    assert np.mean(held) >= 0.9


def test_estimates_with_such_a_tail_have_not_converged(draws):
    """Half of the sentences give nearly the same: the tail alone says that more would not."""
    _, found = draws
    by_halves = [abs(each.value - each.by_size[-2]) for of_layers in found for each in of_layers]
    assert np.mean(np.array(by_halves) <= 0.03) > 0.2
    assert all(abs(each.drift) > 0.03 for of_layers in found for each in of_layers)


def test_the_tail_is_good_and_turings_share_less_what_the_estimate_has_of_it():
    """U (1 − b eᵇ E₁(b)) from the counts of counts; E₁ by summing the integral. One cluster: only types are unseen."""
    counts = np.array([1] * 30 + [2] * 12 + [5] * 9 + [40, 60])
    total, once, twice = counts.sum(), 30, 12
    share = 2 * twice / ((total - 1) * once + 2 * twice)
    slope = -total * np.log1p(-share)
    x = np.linspace(slope, slope + 40, 400_001)
    integral = np.trapezoid(np.exp(slope - x) / x, x)
    assert -tail_of(counts) == pytest.approx(once / total * (1 - slope * integral), rel=1e-4)
    assert tail_of(np.array([4, 9, 30])) == 0


def tail_of(counts):
    types = np.repeat(np.arange(len(counts)), counts)
    return estimate_information(np.zeros_like(types), types, np.arange(len(types)) % 64).tail


def test_halved_clusters_know_what_centres_gain_on_their_own_states():
    """Twenty states per centre of one k-means of all states, and of two of a half each, against fresh states."""
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, 301)
    vectors = rng.standard_normal((300, 16)).astype(np.float32)

    def drawn(num):
        types = rng.choice(300, num, p=shares / shares.sum())
        noise = 0.8 * rng.standard_normal((num, 16)).astype(np.float32)
        return types, torch.from_numpy(vectors[types] + noise), block_of(np.arange(num) // 5)

    types, states, blocks = drawn(2_000)
    others, fresh, _ = drawn(100_000)
    found = HalvedClusters.fitted(states, 100, blocks)
    estimate = found.estimate(types)
    values = [corrected_information(own, types, blocks) for own in found.labels]
    assert estimate.value == pytest.approx(np.mean(values))
    centres = cluster(states, 100).centres
    truth = corrected_information(nearest(fresh, centres).labels.numpy(), others, block_of(np.arange(len(others)) // 5))
    whole = corrected_information(nearest(states, centres).labels.numpy(), types, blocks)
    assert whole - truth > 2 * abs(estimate.value - truth)
    assert estimate.optimism > 0.05
    ends = estimate.columns(0.0, len(types))
    assert ends["low"] < truth < ends["high"]
    few = HalvedClusters.fitted(fresh, 20, block_of(np.arange(len(fresh)) // 5)).estimate(others)
    assert abs(few.optimism) < 0.01
