"""Measures that exist only over time: reference examples, explicit versions, limits."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest

from infoflow.foundation import UserError
from infoflow.heads import expected_jaccard, role_events
from infoflow.over_training import (
    context_positions,
    fuzzy_reordering,
    in_context_gain,
    normalised_convergence,
    source_share,
    triangle_ratios,
)

STEPS = [0, 1, 4, 16, 64, 256, 1024]
SIMILARITY = [0.20, 0.20, 0.24, 0.44, 0.76, 0.92, 1]


# -- convergence ------------------------------------------------------------------------------------------------------


def test_convergence_of_a_reference_curve() -> None:
    found = normalised_convergence(STEPS, SIMILARITY)
    assert found.values == pytest.approx([0, 0, 0.05, 0.30, 0.70, 0.90, 1])
    assert (found.time, found.before, found.after) == (pytest.approx(256), 64, 256)
    assert found.area == pytest.approx(0.49)
    assert normalised_convergence(STEPS, SIMILARITY, level=0.5).time == pytest.approx(32)


def test_convergence_has_its_limits() -> None:
    assert normalised_convergence([0, 1, 8], [0.0, 1.0, 1.0]).area == 1
    at_once = normalised_convergence([0, 1, 8], [0.0, 1.0, 1.0])
    assert (at_once.time, at_once.before, at_once.after) == (1, 0, 1)
    back = normalised_convergence([0, 1, 2, 4, 8], [0.0, 0.95, 0.2, 0.95, 1.0])
    assert (back.before, back.after) == (2, 4)  # the last of two crossings
    still = normalised_convergence([0, 1, 8], [0.96, 0.97, 1.0])
    assert np.isnan(still.values).all()
    assert math.isnan(still.time)
    assert math.isnan(normalised_convergence([0, 1, 8], [0.0, 0.1, 0.5]).time)
    with pytest.raises(UserError, match="from step 0"):
        normalised_convergence([1, 2], [0.1, 1.0])


# -- heads ------------------------------------------------------------------------------------------------------------


def test_role_events_of_a_reference_history() -> None:
    found = role_events([0, 1, 2, 4, 8, 16, 32, 64, 128, 256], [0, 1, 0, 0, 1, 1, 0, 1, 1, 1])
    assert [(birth.before, birth.after, birth.open) for birth in found.births] == [(4, 8, False)]
    assert found.deaths == ()
    assert found.flickers == 4
    assert found.initial is False


@pytest.mark.parametrize(
    ("held", "initial", "births", "deaths", "flickers"),
    [
        ([1, 1, 1, 1, 1], True, [], [], 0),
        ([0, 0, 0, 0, 1], False, [(8, 16, True)], [], 0),
        ([1, 0, 0, 1, 1], True, [(4, 8, False)], [(0, 1, False)], 0),
        ([1, 0, 1, 1, 0], True, [], [(8, 16, True)], 2),
        ([0, 1, 0, 1, 0], False, [], [], 4),
    ],
)
def test_role_events_case_by_case(held, initial, births, deaths, flickers) -> None:
    found = role_events([0, 1, 4, 8, 16], held)
    assert found.initial is initial
    assert [(one.before, one.after, one.open) for one in found.births] == births
    assert [(one.before, one.after, one.open) for one in found.deaths] == deaths
    assert found.flickers == flickers


def test_without_step_0_nothing_is_known_of_the_start() -> None:
    assert role_events([2, 4, 8], [1, 1, 1]).initial is None
    assert role_events([2, 4, 8], [1, 1, 1]).births == ()


def explicit_jaccard(heads: int, a: int, b: int) -> float:
    first = set(range(a))
    others = [set(chosen) for chosen in combinations(range(heads), b)]
    return float(np.mean([len(first & other) / len(first | other) for other in others]))


@pytest.mark.parametrize(("heads", "a", "b"), [(8, 3, 2), (7, 5, 4), (6, 6, 3), (5, 0, 2), (9, 1, 1)])
def test_expected_jaccard_is_the_mean_over_all_sets(heads: int, a: int, b: int) -> None:
    assert expected_jaccard(heads, a, b) == pytest.approx(explicit_jaccard(heads, a, b))
    assert expected_jaccard(heads, a, b) == pytest.approx(expected_jaccard(heads, b, a))


def test_expected_jaccard_of_six_of_48_heads() -> None:
    assert expected_jaccard(48, 6, 6) == pytest.approx(0.0720, abs=5e-5)
    assert math.isnan(expected_jaccard(48, 0, 0))
    with pytest.raises(UserError, match="from 0 to 4"):
        expected_jaccard(4, 5, 1)


# -- in-context learning, gradients, weights --------------------------------------------------------------------------


def test_in_context_gain_of_a_power_law() -> None:
    losses = 3 + 2 / np.sqrt(np.arange(1, 601))
    assert in_context_gain(losses, 50, 500, window=0) == pytest.approx(0.193400, abs=5e-7)
    assert in_context_gain(losses, 50, 500) == pytest.approx(0.193825, abs=5e-7)
    explicit = np.mean([losses[p - 1] for p in range(1, 9)]) - np.mean([losses[p - 1] for p in range(595, 601)])
    assert in_context_gain(losses, 3, 600) == pytest.approx(explicit)
    with pytest.raises(UserError, match="among the 600"):
        in_context_gain(losses, 50, 601)


def test_which_positions_are_compared() -> None:
    assert context_positions(63) is None
    assert context_positions(64) == (6, 63)  # 6.4 and 62.72
    assert context_positions(125) == (13, 123)  # halves go up: 12.5 and 122.5
    assert context_positions(512) == context_positions(2048) == (50, 500)


def test_triangle_ratios() -> None:
    assert triangle_ratios([(0, 0), (3, 4), (6, 0), (9, 4)]) == pytest.approx([5 / 3, 5 / 3])
    line = np.outer(np.arange(5) ** 2, np.ones(3))
    assert triangle_ratios(line) == pytest.approx(np.ones(3))
    walk = np.cumsum(np.eye(40), axis=0)
    assert triangle_ratios(walk) == pytest.approx(np.full(38, math.sqrt(2)))
    noise = np.random.default_rng(0).normal(size=(30, 20_000))
    assert triangle_ratios(noise) == pytest.approx(np.full(28, 2), rel=0.03)
    assert triangle_ratios([(0, 0), (1, 0), (0, 0)])[0] == math.inf
    with pytest.raises(UserError, match="three checkpoints"):
        triangle_ratios([(0, 0), (1, 1)])


# -- translation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "frs_b", "frs_a", "tau"),
    [
        ([0, 1, 4, 2, 3], 0.5, 0.5, 0.8),
        ([2, 3, 4, 0, 1], 0.75, 0.5, 0.4),
        ([0, 0, 1, 2, 2], 1, 1, 1),
        ([1, 0], 0, 0, 0),
        ([3, 5, 9], 1, 1, 1),  # what is left out between is not counted
        ([4], 1, 1, 1),
        ([], 1, 1, 1),
    ],
)
def test_reordering_of_reference_orders(ranks, frs_b, frs_a, tau) -> None:
    found = fuzzy_reordering(ranks)
    assert (found.frs_b, found.frs_a, found.tau_share) == pytest.approx((frs_b, frs_a, tau))


def test_reordering_is_the_explicit_count() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        ranks = generator.integers(0, 6, size=int(generator.integers(2, 9))).tolist()
        dense = [sorted(set(ranks)).index(rank) for rank in ranks]
        n, jumps = len(dense), sum(b - a not in (0, 1) for a, b in pairwise(dense))
        ends = (dense[0] - -1 != 1) + (max(dense) + 1 - dense[-1] != 1)
        inversions = sum(dense[i] > dense[j] for i, j in combinations(range(n), 2))
        found = fuzzy_reordering(ranks)
        assert found.frs_b == pytest.approx(1 - jumps / (n - 1))
        assert found.frs_a == pytest.approx(1 - (jumps + ends) / (n + 1))
        assert found.tau_share == pytest.approx(1 - inversions / (n * (n - 1) / 2))


def test_source_share() -> None:
    share, entropy = source_share([0.3, 0.2, 0.1], [0.25, 0.15])
    assert share == pytest.approx(0.6)
    assert entropy == pytest.approx(1.0114, abs=5e-5)
    wide = np.array([[0.1, -0.2], [0.2, 0.0], [-0.05, 0.05]])  # absolute values over dimensions
    assert source_share(wide, np.array([[0.25], [-0.15]])) == (pytest.approx(share), pytest.approx(entropy))
    assert source_share([1, 1, 1, 1], [0.0]) == (1, pytest.approx(math.log(4)))
    assert all(math.isnan(number) for number in source_share([0.0], [0.0]))
    assert source_share([0.0], [1.0])[0] == 0
