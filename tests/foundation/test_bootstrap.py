"""The block bootstrap: blocks, weights, intervals, coverage."""

import numpy as np
import pytest

from infoflow.foundation import NUM_BLOCKS, Interval, block_of, interval, replicate_weights


def test_block_depends_on_the_sentence_only():
    ids = np.array([5, 17, 5, 123_456_789])
    blocks = block_of(ids)
    assert blocks[0] == blocks[2]
    np.testing.assert_array_equal(block_of(ids[::-1]), blocks[::-1])
    assert set(block_of(np.arange(5000)).tolist()) == set(range(NUM_BLOCKS))


def test_weights_draw_64_blocks_with_replacement():
    weights = replicate_weights(500)
    assert weights.shape == (500, NUM_BLOCKS)
    assert set(weights.sum(axis=1)) == {float(NUM_BLOCKS)}
    assert weights.mean() == 1
    assert weights.var() == pytest.approx(1 - 1 / NUM_BLOCKS, rel=0.05)  # of a binomial(64, 1/64)
    np.testing.assert_array_equal(replicate_weights(500), weights)
    assert not np.array_equal(replicate_weights(500, seed=1), weights)


def test_interval_by_order_statistics():
    values = np.random.default_rng(0).permutation(np.arange(0.0, 201.0))
    assert interval(values) == pytest.approx((5, 195))
    assert interval(values, level=0.5) == pytest.approx((50, 150))
    assert interval(np.append(values, np.nan)) == pytest.approx((5, 195))


@pytest.mark.parametrize("values", [[], [np.nan, np.nan], [np.inf]])
def test_nothing_finite_gives_no_interval(values):
    assert np.isnan(interval(np.array(values))).all()


def test_intervals_cover_the_truth():
    """A ratio of sums over sentences, as the streaming measures hold it: 95 % intervals from 64 blocks."""
    rng, weights, ids = np.random.default_rng(0), replicate_weights(200), np.arange(2000)
    blocks, covered = block_of(ids), 0
    for _ in range(300):
        lengths = rng.integers(1, 20, size=len(ids))
        sentence = rng.normal(0.3, 1.0, size=len(ids))  # tokens of a sentence share it: they are not independent
        sums = [np.bincount(blocks, values, NUM_BLOCKS) for values in (lengths * sentence, lengths)]
        low, high = interval((weights @ sums[0]) / (weights @ sums[1]))
        covered += low <= 0.3 <= high
    assert 0.91 <= covered / 300 <= 0.98


def test_difference_of_two_models_on_the_same_sentences_is_paired():
    sums, weights = np.random.default_rng(1).normal(5, 2, size=NUM_BLOCKS), replicate_weights()
    first, second = weights @ sums / NUM_BLOCKS, weights @ (sums + 0.1) / NUM_BLOCKS
    assert np.diff(interval(first))[0] > 0.5
    np.testing.assert_allclose(interval(second - first), 0.1)


@pytest.mark.parametrize(
    ("ends", "reached"),
    [
        ((0.9, 1.1), (0.75, 1.25)),
        ((0.5, 1.1), (0.5, 1.25)),
        ((0.5, 1.5), (0.5, 1.5)),
        ((float("nan"), float("nan")), (0.75, 1.25)),
    ],
)
def test_a_value_off_a_grid_is_known_to_a_step_at_best(ends, reached):
    assert Interval(*ends).reaching(1.0, 0.25) == reached
