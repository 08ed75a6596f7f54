"""Intervals over seeds where a bootstrap over sentences has nothing to say."""

import numpy as np
import pytest

from infoflow.foundation import interval_over_seeds

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
