"""Intervals over seeds where a bootstrap over sentences has nothing to say."""

import numpy as np
import pytest

from infoflow.foundation import (
    NUM_BLOCKS,
    block_effects,
    block_interval,
    bounds_of,
    interval_over_seeds,
    replicate_weights,
)

SEEDS = [(0,), (1,), (2,)]
OWN = [(0.0, 0.02), (0.0, 0.04), (0.0, 0.03)]


def test_numbers_that_no_draw_moves_keep_the_mean_of_their_own_intervals() -> None:
    none_right = interval_over_seeds(SEEDS, np.zeros(3), np.zeros((3, 64)), OWN)
    assert tuple(none_right) == pytest.approx((0.0, 0.03))
    all_right = interval_over_seeds(SEEDS, np.ones(3), np.ones((3, 64)), [(1 - high, 1.0) for _, high in OWN])
    assert tuple(all_right) == pytest.approx((0.97, 1.0))


def test_seeds_that_differ_more_than_that_count() -> None:
    values = np.array([0.0, 0.5, 1.0])
    still = np.repeat(values[:, None], 64, axis=1)
    plain = interval_over_seeds(SEEDS, values, still)
    assert interval_over_seeds(SEEDS, values, still, [(0.0, 0.02), (0.5, 0.5), (0.98, 1.0)]) == plain
    assert plain.low < 0
    assert plain.high > 1


def test_numbers_that_draws_move_do_not_look_at_them() -> None:
    values, noise = np.array([0.2, 0.3, 0.25]), np.random.default_rng(0).normal(0, 0.01, (3, 64))
    noise[0] = 0
    draws = values[:, None] + noise
    assert interval_over_seeds(SEEDS, values, draws, [(0.0, 1.0)] * 3) == interval_over_seeds(SEEDS, values, draws)


def test_exact_numbers_stay_exact() -> None:
    values = np.full(3, 0.4)
    draws, own = np.full((3, 64), 0.4), [(0.4, 0.4)] * 3
    assert tuple(interval_over_seeds(SEEDS, values, draws, own)) == pytest.approx((0.4, 0.4))


def _share_interval(rng, truth: float, size: int, hard: float):
    """The interval of three seeds' mean share, of examples that are partly hard for all seeds."""
    levels = np.where(rng.random(size) < hard, rng.random(size), rng.random((3, size)))
    right, blocks, weights = levels < truth, rng.integers(0, NUM_BLOCKS, size), replicate_weights()
    hits = np.stack([np.bincount(blocks, one, NUM_BLOCKS) for one in right])
    draws = hits @ weights.T / (weights @ np.bincount(blocks, minlength=NUM_BLOCKS))
    values = right.mean(axis=1)
    own = [
        block_interval(value, block_effects(value, drawn), scale="share", count=size)
        for value, drawn in zip(values.tolist(), draws, strict=True)
    ]
    return interval_over_seeds(SEEDS, values, draws, own, "share")


@pytest.mark.parametrize("size", [60, 600])
@pytest.mark.parametrize("truth", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("hard", [0.0, 0.9])
def test_shares_near_their_bounds_are_covered_inside_them(size, truth, hard) -> None:
    """300 draws: 0.93 of a nominal 0.95; before, three seeds at .99 covered .57, and ends lay beyond 1."""
    rng = np.random.default_rng(7)
    ends = np.array([_share_interval(rng, truth, size, hard) for _ in range(300)])
    assert (ends >= 0).all()
    assert (ends <= 1).all()
    assert np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) >= 0.93


@pytest.mark.parametrize("scale", ["share", "percent", "correlation", (0.0, 12.0)])
def test_an_interval_over_seeds_stays_within_two_bounds(scale) -> None:
    least, most = bounds_of(scale)
    values = least + (most - least) * np.array([0.9, 1.0, 1.0])
    low, high = interval_over_seeds(SEEDS, values, scale=scale)
    assert least < low < values.mean() < high <= most
    assert low < values.mean() - (high - values.mean())  # it reaches inwards


def test_one_bound_cuts_the_interval() -> None:
    values = np.array([0.1, 0.5, 0.9])
    plain = interval_over_seeds(SEEDS, values)
    assert plain.low < 0
    assert interval_over_seeds(SEEDS, values, scale="positive") == (0, plain.high)
    assert interval_over_seeds(SEEDS, values, scale="explained") == (plain.low, 1)
