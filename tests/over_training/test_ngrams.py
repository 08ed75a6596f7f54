"""n-gram models with absolute discounting, against loops over dictionaries."""

import math
from collections import Counter

import numpy as np
import pytest
from support.ngram_loops import Loops

from infoflow.foundation import stream
from infoflow.over_training import NgramModel


def flat(sentences):
    return np.concatenate(sentences), np.cumsum([0, *map(len, sentences)])


def random_sentences(size=9, num=30, seed=0):
    rng = stream("ngram-test", seed)
    return [rng.integers(0, size - 2, rng.integers(1, 9)) for _ in range(num)]


def test_reference_example():
    found = NgramModel(np.array([0, 1, 0, 2, 0, 1, 0, 1]), np.array([0, 8]), 4, 2)
    assert found.unigram == pytest.approx([0.45, 0.35, 0.15, 0.05])
    types = np.arange(4)
    after_a, after_d = (found.chances(types, np.full((4, 1), token), 2) for token in (0, 3))
    assert after_a == pytest.approx([0.16875, 0.69375, 0.11875, 0.01875])
    assert after_d == pytest.approx(found.unigram)
    uniform = np.full((1, 4), -math.log(4))
    divergence = found.divergences(uniform, np.array([[0]]), 2).from_ngram
    assert divergence[:, 0] == pytest.approx([0.225174, 0.504781], abs=5e-7)


@pytest.mark.parametrize("start", [None, 8])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_agree_with_loops(order, start):
    sentences = random_sentences()
    found, slow = NgramModel(*flat(sentences), 9, order, start=start), Loops(sentences, 9, order, start)
    rng = stream("ngram-test-contexts")
    for _ in range(40):
        history = tuple(rng.integers(0, 9, order - 1).tolist())
        before = np.tile(np.array(history[::-1], dtype=np.int64), (9, 1))
        chances = found.chances(np.arange(9), before, order)
        np.testing.assert_allclose(chances, slow.distribution(history), rtol=1e-12)
        assert chances.sum() == pytest.approx(1)


def test_a_sentence_does_not_follow_the_one_before_it_and_start_does():
    sentences = [np.array([0, 1]), np.array([2, 3])]
    alone = NgramModel(*flat(sentences), 5, 2)
    assert alone.chances(np.array([2]), np.array([[1]]), 2)[0] == pytest.approx(alone.unigram[2])
    begun = NgramModel(*flat(sentences), 5, 2, start=4)
    assert begun.chances(np.array([0]), np.array([[4]]), 2)[0] == pytest.approx(0.25 / 2 + 0.75 * begun.unigram[0])


def test_tokens_that_are_only_history():
    sentences = random_sentences()
    counted = [np.arange(len(sentence)) > 0 for sentence in sentences]
    found = NgramModel(*flat(sentences), 9, 3, counted=np.concatenate(counted))
    slow = Loops(sentences, 9, 3, counted=counted)
    for history in ((0, 1), (3, 2), (8, 8)):
        chances = found.chances(np.arange(9), np.tile(np.array(history[::-1]), (9, 1)), 3)
        np.testing.assert_allclose(chances, slow.distribution(history), rtol=1e-12)


def test_divergences_agree_with_sums_over_the_vocabulary():
    sentences, rng = random_sentences(), stream("ngram-test-model")
    found, slow = NgramModel(*flat(sentences), 9, 3), Loops(sentences, 9, 3)
    logits = rng.normal(size=(25, 9)) * 2
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    before = rng.integers(-1, 9, (25, 2))
    before[before[:, 0] == -1, 1] = -1
    result = found.divergences(logs, before, 3)
    for row in range(25):
        model = np.exp(logs[row])
        for n in (1, 2, 3):
            context = before[row, : n - 1]
            history = tuple(context[: len(context) - (context == -1).sum()][::-1].tolist())
            q = slow.distribution(history)
            expected = (q * np.log(q / model)).sum(), (model * np.log(model / q)).sum()
            assert (result.from_ngram[n - 1, row], result.to_ngram[n - 1, row]) == pytest.approx(expected, abs=1e-10)
            uniform = (q * np.log(q * 9)).sum(), -np.log(9 * q).mean()
            got = result.from_ngram_uniform[n - 1, row], result.to_ngram_uniform[n - 1, row]
            assert got == pytest.approx(uniform, abs=1e-10)


def test_drawn_texts_follow_the_model():
    sentences = [np.array([0, 1, 2, 3])] * 20
    found = NgramModel(*flat(sentences), 5, 2)
    (text,) = found.sample(2, [4000], stream("ngram-test-draw"))
    pairs = Counter(zip(text[:-1].tolist(), text[1:].tolist(), strict=True))
    after = np.array([pairs[1, token] for token in range(5)])
    np.testing.assert_allclose(after / after.sum(), found.chances(np.arange(5), np.ones((5, 1), int), 2), atol=0.03)
    again = found.sample(2, [4000], stream("ngram-test-draw"))[0]
    assert (text == again).all()


def test_where_a_sentence_ends_the_next_begins():
    sentences = [np.array([4, 0, 1, 3])] * 20  # 4 begins, 3 ends
    found = NgramModel(*flat(sentences), 5, 2)
    (text,) = found.sample(2, [500], stream("ngram-test-end"), 4, never=(3, 4))
    assert not np.isin(text, [3, 4]).any()
    after_last = text[1:][text[:-1] == 1]
    assert (after_last == 0).mean() > 0.8


def test_no_text_but_single_tokens():
    found = NgramModel(np.array([0, 1]), np.array([0, 1, 2]), 3, 3)
    np.testing.assert_allclose(found.chances(np.arange(3), np.zeros((3, 2), int), 3), found.unigram)
    logs = np.log(np.full((2, 3), 1 / 3))
    three = found.divergences(logs, np.zeros((2, 2), int), 3).from_ngram
    assert (three == found.divergences(logs, np.zeros((2, 0), int), 1).from_ngram).all()
