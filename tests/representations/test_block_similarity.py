"""Similarity and variance within words, and without each block, against leaving the block out by hand."""

import math

import numpy as np
import pytest
import torch

from infoflow.foundation import NUM_BLOCKS
from infoflow.representations import (
    average_similarity,
    maximum_explainable_variance,
    rogue_share,
    self_similarity,
    unit_rows,
)
from infoflow.representations._views import (
    WordBlocks,
    average_cosine,
    average_within_words,
    by_direction,
    gram,
    product,
)
from infoflow.representations._word_geometry import variance_within_words


def cloud(num=300, width=5, words=12, blocks=9, seed=0):
    """States of words with a common offset, their words and their blocks."""
    rng = np.random.default_rng(seed)
    word = rng.integers(0, words, num)
    states = rng.normal(size=(num, width)) + 2 * rng.normal(size=(words, width))[word] + 0.5
    return torch.from_numpy(states), word, rng.integers(0, blocks, num)


def mean_by_word(states, word, statistic):
    """The published definition: one word after the other; NaN is skipped."""
    values = [statistic(states[word == each]) for each in np.unique(word)]
    return float(np.nanmean(values))


def leave_out(states, word, block, statistic):
    return np.array(
        [mean_by_word(states[block != b], word[block != b], statistic) for b in range(NUM_BLOCKS)], dtype=float
    )


def pseudo_values(states, word, block, statistic):
    """The mean over words without each block, by the effects of Busing, Meijer and Leeden (1999), cell by cell.

    A block lowers a word's value by what its cell adds beyond its share of what all cells add; a word of which it
    leaves too little counts nowhere without it.
    """
    value = {w: statistic(states[word == w]) for w in np.unique(word)}
    known = [w for w in value if np.isfinite(value[w])]
    effects = {}
    for w in known:
        own = block[word == w]
        cells = {b: (own == b).mean() for b in np.unique(own)}
        without = {b: statistic(states[(word == w) & (block != b)]) for b in cells}
        added = {b: (1 - share) * (value[w] - without[b]) for b, share in cells.items() if np.isfinite(without[b])}
        scale = np.sqrt(1 - sum(share**2 for share in cells.values()))
        for b in cells:
            effects[w, b] = (added[b] - cells[b] * sum(added.values())) / scale if b in added else None
    result = []
    for b in range(NUM_BLOCKS):
        changed = [value[w] - effects.get((w, b), 0.0) for w in known if effects.get((w, b), 0.0) is not None]
        result.append(np.mean(changed) if changed else np.nan)
    return np.array(result)


def test_average_similarity_without_each_block():
    states, _, block = cloud()
    found = average_cosine(unit_rows(states), torch.from_numpy(block))
    assert found.value == pytest.approx(average_similarity(states), abs=1e-12)
    expected = [average_similarity(states[block != b]) for b in range(NUM_BLOCKS)]
    np.testing.assert_allclose(found.without_block, expected, atol=1e-12)


def test_self_similarity_without_each_block():
    states, word, block = cloud()
    found = average_within_words(unit_rows(states), WordBlocks.of(word, block))
    assert found.value == pytest.approx(mean_by_word(states, word, self_similarity), abs=1e-12)
    np.testing.assert_allclose(found.without_block, pseudo_values(states, word, block, self_similarity), atol=1e-12)


def test_words_that_a_block_leaves_with_one_occurrence_count_nowhere_without_it():
    states, _, _ = cloud(num=6)
    word, block = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 1, 2, 3, 4, 5])
    found = average_within_words(unit_rows(states), WordBlocks.of(word, block))
    assert found.value == pytest.approx(mean_by_word(states, word, self_similarity), abs=1e-12)  # word 2 is NaN
    expected = pseudo_values(states, word, block, self_similarity)
    np.testing.assert_allclose(found.without_block, expected, atol=1e-12)
    assert found.without_block[0] == pytest.approx(self_similarity(states[2:5]), abs=1e-12)


def test_zero_vectors_have_no_similarity():
    states, word, block = cloud()
    states[::4] = 0
    kept = np.arange(len(word)) % 4 > 0
    cells, everything = WordBlocks.of(word[kept], block[kept]), WordBlocks.of(word, block)
    units = unit_rows(states)
    for found, expected in (
        (average_within_words(units, everything), average_within_words(units[kept], cells)),
        (average_cosine(units, torch.from_numpy(block)), average_cosine(units[kept], torch.from_numpy(block[kept]))),
    ):
        assert found.value == pytest.approx(expected.value, abs=1e-12)
        np.testing.assert_allclose(found.without_block, expected.without_block, atol=1e-12)


def test_replicates_have_the_spread_of_fresh_samples():
    """Sentences of correlated occurrences; the bootstrap's deviation matches that over independent corpora."""
    values, deviations = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        block = rng.integers(0, NUM_BLOCKS, 200)[np.arange(1600) // 8]
        word = rng.integers(0, 20, 1600)
        topic = rng.normal(size=(NUM_BLOCKS, 6))[block]
        vectors = np.random.default_rng(99).normal(size=(20, 6))[word]
        states = torch.from_numpy(vectors + topic + rng.normal(size=(1600, 6)))
        found = average_within_words(unit_rows(states), WordBlocks.of(word, block))
        values.append(found.value)
        deviations.append(found.replicates.std())
    assert np.mean(deviations) / np.std(values) == pytest.approx(1, abs=0.3)


def test_explainable_variance_is_the_mean_over_words():
    states, word, block = cloud()
    for width in (2, 5):  # more occurrences than dimensions; below: fewer
        found = variance_within_words(states[:, :width], WordBlocks.of(word, block))
        assert found.value == pytest.approx(mean_by_word(states[:, :width], word, maximum_explainable_variance))
    states, word, block = cloud(num=40, width=30, words=4)
    found = variance_within_words(states, WordBlocks.of(word, block))
    assert found.value == pytest.approx(mean_by_word(states, word, maximum_explainable_variance))


def test_explainable_variance_without_a_block_is_right_to_first_order():
    states, word, block = cloud(num=4000, words=10, blocks=NUM_BLOCKS)
    states = states * torch.tensor([1, 1.5, 1, 1, 0.7])  # equal variances have no first direction to keep
    found = variance_within_words(states, WordBlocks.of(word, block))
    exact = leave_out(states, word, block, maximum_explainable_variance)
    approximate, changes = found.without_block - found.value, exact - found.value
    assert np.corrcoef(approximate, changes)[0, 1] > 0.99
    assert approximate.std() == pytest.approx(changes.std(), rel=0.05)


def test_total_variance_without_a_block_is_exact_on_a_line():
    """With one direction the share is 1, whichever block is left out."""
    rng = np.random.default_rng(0)
    states = torch.from_numpy(np.outer(rng.normal(size=50), rng.normal(size=4)) + 3)
    found = variance_within_words(states, WordBlocks.of(rng.integers(0, 3, 50), rng.integers(0, 6, 50)))
    assert found.value == pytest.approx(1)
    np.testing.assert_allclose(found.without_block, 1, rtol=1e-9)


def test_variance_of_two_points_of_equal_points_and_of_none_is_left_out():
    states, word, block = cloud(num=30, words=2)
    constant = torch.full((7, 5), 0.1, dtype=torch.float64)
    more = torch.cat([states, states[:2], constant])
    words = np.concatenate([word, [7, 7], np.full(7, 8)])
    blocks = np.concatenate([block, [0, 1], np.arange(7)])
    found = variance_within_words(more, WordBlocks.of(words, blocks))
    alone = variance_within_words(states, WordBlocks.of(word, block))
    assert found.value == pytest.approx(alone.value, abs=1e-12)
    np.testing.assert_allclose(found.without_block, alone.without_block, atol=1e-12)
    assert math.isnan(variance_within_words(constant, WordBlocks.of(np.zeros(7, int), np.arange(7))).value)
    assert math.isnan(variance_within_words(states[:0], WordBlocks.of(word[:0], block[:0])).value)


def test_rogue_dimensions_are_those_with_the_largest_part_of_the_mean_cosine():
    states, _, block = cloud(width=7)
    states[:, 2] += 30
    units = unit_rows(states).numpy()
    n = len(units)

    def share(kept):
        parts = [
            sum(kept[i, d] * kept[j, d] for i in range(len(kept)) for j in range(i)) / (len(kept) * (len(kept) - 1) / 2)
            for d in range(7)
        ]
        return sum(sorted(parts)[-3:]) / sum(parts)

    found = rogue_share(torch.from_numpy(units[: n // 5]), torch.from_numpy(block[: n // 5]))
    assert found.value == pytest.approx(share(units[: n // 5]), abs=1e-9)
    assert found.value > 0.95
    assert found.without_block[3] == pytest.approx(share(units[: n // 5][block[: n // 5] != 3]), abs=1e-9)


def test_narrow_states_have_fewer_than_three_dimensions():
    states, _, block = cloud(width=2)
    assert rogue_share(unit_rows(states), torch.from_numpy(block)).value == pytest.approx(1)


# -- products over tokens equal the plain ones, in every memory layout -------------------------------------------


def views(dtype, widths=(7, 5), rows=200):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, width, generator=generator, dtype=torch.float64).to(dtype) for width in widths]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
def test_product(dtype, transposed) -> None:
    x, y = views(dtype)
    expected = x.double().mT @ y.double()
    if transposed:
        x, y = by_direction(x), by_direction(y)
    torch.testing.assert_close(product(x, y).double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(product(x[10:60], y[10:60]), x[10:60].mT @ y[10:60], rtol=1e-5, atol=1e-5)


def test_product_without_directions_is_empty() -> None:
    assert product(torch.zeros(40, 0), torch.zeros(40, 3)).shape == (0, 3)
    assert product(torch.zeros(40, 3), torch.zeros(40, 0)).shape == (3, 0)
    assert not product(torch.zeros(0, 40), torch.zeros(0, 3)).any()


@pytest.mark.parametrize("width", [0, 1, 3, 4, 5, 9, 16])
def test_gram(width) -> None:
    (x,) = views(torch.float64, (width,))
    torch.testing.assert_close(gram(x), x.mT @ x)


def test_by_direction_keeps_values() -> None:
    (x,) = views(torch.float64, (6,))
    kept = by_direction(x)
    assert kept.dtype == torch.float32
    assert kept.mT.is_contiguous()
    assert torch.equal(kept, x.float())
