"""Published estimators of average similarity against its exact value."""

import math

import numpy as np
import pytest

from infoflow.representations import (
    average_similarity,
    batch_means_similarity,
    random_pairs_similarity,
    self_similarity,
)


def anisotropic(num, seed=0):
    return np.random.default_rng(seed).normal(size=(num, 12)) + 0.7


def test_batch_means_of_all_batches_by_hand():
    """Fewer than twelve batches: none is stable for long enough, and every row is used once."""
    x = anisotropic(20)
    from infoflow.foundation import stream

    order = stream("batch-means", 4).permutation(20)
    expected = np.mean([self_similarity(x[order[start : start + 2]]) for start in range(0, 20, 2)])
    assert batch_means_similarity(x, seed=4) == pytest.approx(expected)


def test_batch_means_stop_once_their_variance_stays_small():
    x = anisotropic(30_000)  # batches of 30
    x[:400] = 0  # zero vectors take no part
    exact = average_similarity(x)
    values = np.array([batch_means_similarity(x, seed=seed) for seed in range(20)])
    assert np.abs(values - exact).max() < 0.05
    assert values.std() > 0.001  # it did not read everything
    assert values.mean() == pytest.approx(exact, abs=0.01)


def test_rows_whose_similarities_vary_are_all_read():
    """The variance of batches of two never falls under .001, so the order of rows matters little."""
    x = anisotropic(2000)
    assert batch_means_similarity(x) == pytest.approx(average_similarity(x), abs=0.03)


def test_random_pairs_are_right_on_average():
    x = anisotropic(50)
    values = [random_pairs_similarity(x, pairs=2000, seed=seed) for seed in range(40)]
    exact = average_similarity(x)
    assert np.mean(values) == pytest.approx(exact + (1 - exact) / 50, abs=0.005)
    assert random_pairs_similarity(x[:1]) == pytest.approx(1)  # a row with itself


@pytest.mark.parametrize("num", [0, 1])
def test_too_few_rows(num):
    assert math.isnan(batch_means_similarity(np.ones((num, 3))))
    assert math.isnan(batch_means_similarity(np.zeros((5, 3))))
    assert math.isnan(random_pairs_similarity(np.zeros((num, 3))))
