"""Masked LM by whole words (BERT's second release) and by n-grams of words (ALBERT)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.zoo import MASK, ORDINARY, VOCABULARY, check_pure, corrupted, distinct, framed, mixed, words
from objectives.zoo import same_distribution as check_distribution
from scipy.stats import chisquare

from infoflow.objectives import Example, MaskedLM

PIECED = framed(10, 60, 61, 11, 12, 62, 13, 14, 63, 64, 65, 15, 16, 66, 17, 18)
"""Words of 3, 1, 2, 1, 4, 1, 2, 1, 1 pieces: `round(.15 · 18)` = 3 tokens may be masked."""


def budget(tokens: np.ndarray, rate: float = 0.15) -> int:
    return min(20, max(1, round(rate * len(tokens))))


def whole_words(tokens: np.ndarray, rate: float, generator: np.random.Generator) -> tuple[int, ...]:
    """`create_masked_lm_predictions` of google-research/bert with do_whole_word_mask."""
    groups = words(tokens)
    masked: list[int] = []
    for number in generator.permutation(len(groups)):
        if len(masked) >= budget(tokens, rate):
            break
        if len(masked) + len(groups[number]) > budget(tokens, rate):
            continue
        masked += groups[number]
    return tuple(sorted(masked))


def n_grams(tokens: np.ndarray, rate: float, generator: np.random.Generator) -> tuple[int, ...]:
    """`create_masked_lm_predictions` of google-research/albert, `ngram=3`, `favor_longer_ngram=False`."""
    groups, most = words(tokens), budget(tokens, rate)
    chances = np.array([1, 1 / 2, 1 / 3]) / (1 + 1 / 2 + 1 / 3)
    masked: list[int] = []
    for first in generator.permutation(len(groups)):
        if len(masked) >= most:
            break
        n = int(generator.choice([1, 2, 3], p=chances))
        new = [place for group in groups[first : first + n] for place in group]
        while len(masked) + len(new) > most and n > 1:
            n -= 1
            new = [place for group in groups[first : first + n] for place in group]
        if len(masked) + len(new) > most or set(new) & set(masked):
            continue
        masked += new
    return tuple(sorted(masked))


def positions(one) -> tuple[int, ...]:
    return tuple(np.flatnonzero(one.selected).tolist())


@pytest.mark.parametrize("tokens", [PIECED, distinct(12), mixed(40, 3)], ids=["pieces", "words", "mixed"])
@pytest.mark.parametrize(("selection", "explicit"), [("whole-word", whole_words), ("n-gram", n_grams)])
def test_selections_are_distributed_as_in_the_released_code(selection, explicit, tokens) -> None:
    rate = 0.15 if len(tokens) < 30 else 0.05
    objective = MaskedLM(selection=selection, rate=rate)
    check_distribution(objective, tokens, lambda generator: explicit(tokens, rate, generator), positions)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 60), st.integers(0, 10**6), st.sampled_from(["whole-word", "n-gram"]))
def test_words_stay_whole_within_the_budget(length, seed, selection) -> None:
    tokens = mixed(length, seed)
    result = check_pure(MaskedLM(selection=selection), Example(texts=(tokens,)), seed)
    chosen = set(positions(result))
    assert len(chosen) <= budget(tokens)
    for word in words(tokens):
        assert chosen >= set(word) or not chosen & set(word)
    assert np.array_equal(result.labels, np.where(result.selected, tokens, -100))
    assert np.array_equal(result.input_ids[~result.selected], tokens[~result.selected])
    assert not result.selected[[0, -1]].any()


def test_where_every_word_is_one_piece_the_budget_is_met() -> None:
    for length, expected in [(1, 1), (9, 2), (20, 3), (50, 8)]:
        for selection in ("whole-word", "n-gram"):
            found = {int(one.selected.sum()) for one in corrupted(MaskedLM(selection=selection), distinct(length), 20)}
            assert found == {expected}


def test_n_grams_are_as_frequent_as_one_over_n() -> None:
    """With one n-gram in a long text and no budget in the way, its length is seen as it is drawn."""
    counts = np.zeros(4)
    for one in corrupted(MaskedLM(selection="n-gram", max_predictions=3, rate=0.15), distinct(50), 4000):
        runs = np.split(chosen := np.flatnonzero(one.selected), np.flatnonzero(np.diff(chosen) > 1) + 1)
        counts[max(map(len, runs))] += 1
    # Three tokens in all: a first n-gram of three is seen as one run of three. Else 1 + 1 + 1, 1 + 2, 2 + 1, where two
    # n-grams touch by chance now and then: with 50 places at most in one of ten.
    first_of_three = counts[3] / 4000
    assert 2 / 11 - 0.02 < first_of_three < 2 / 11 + 0.08


def test_one_run_of_n_words_where_the_budget_is_one_n_gram() -> None:
    """Budget 2: P(1) = 6/11, two and three words fill it, and a single word is followed by another single word."""
    together = 0
    for one in corrupted(MaskedLM(selection="n-gram", max_predictions=2), distinct(50), 4000):
        first, second = positions(one)
        together += int(second - first == 1)
    # 49 of 50 starts leave room for two words; two single words touch in 2 of 50 places.
    start_of_two = 5 / 11 * 49 / 50
    touching = (1 - start_of_two) * 2 * 49 / 50 / 49
    expected = start_of_two + touching
    assert chisquare([together, 4000 - together], [4000 * expected, 4000 * (1 - expected)]).pvalue > 1e-3


def test_pieces_of_a_word_have_a_fate_each_and_random_tokens_are_ordinary() -> None:
    tokens = framed(10, 60, 60, 60)
    shown = np.concatenate(
        [one.input_ids[one.selected] for one in corrupted(MaskedLM(selection="whole-word", rate=0.7), tokens, 3000)]
    )
    assert len(shown) == 4 * 3000
    assert (shown == MASK).mean() == pytest.approx(0.8, abs=0.015)
    others = shown[(shown != MASK) & (shown != 10) & (shown != 60)]
    assert set(others) <= set(ORDINARY)
    assert len(others) / len(shown) == pytest.approx(0.1 * 84 / 85, abs=0.012)
    assert VOCABULARY.ordinary.tolist() == list(ORDINARY)
