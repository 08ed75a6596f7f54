"""Which tokens to hide: single ones, whole words, n-grams of words, spans of words."""

import numpy as np

from infoflow.corpus import Vocabulary


def words_of(tokens: np.ndarray, vocabulary: Vocabulary) -> list[np.ndarray]:
    """Positions of each word, special tokens left out: a piece and those that continue it."""
    places = np.flatnonzero(~vocabulary.is_special[tokens])
    if len(places) == 0:
        return []
    starts = vocabulary.word_starts(tokens)[places]
    return np.split(places, np.flatnonzero(starts)[1:]) if starts.any() else [places]


def bert_budget(num_tokens: int, num_candidates: int, rate: float, most: int) -> int:
    """How many tokens BERT predicts: `min(most, max(1, round(rate · len)))`, `len` with [CLS] and [SEP]."""
    return min(most, max(1, round(rate * num_tokens)), num_candidates)


def n_grams(words: list[np.ndarray], budget: int, longest: int, generator: np.random.Generator) -> np.ndarray:
    r"""Positions of n-grams of whole words, \(P(n) \propto 1/n\) for n up to `longest`; starts in random order.

    An n-gram that would exceed the budget is cut to fewer words, one that overlaps an earlier one is passed over
    (ALBERT's `create_masked_lm_predictions`).
    """
    taken = np.zeros(len(words), dtype=bool)
    sizes = np.array([len(word) for word in words], dtype=np.int64)
    shares = 1 / np.arange(1, longest + 1)
    cumulative = np.cumsum(shares / shares.sum())
    chosen, num = [], 0
    for start in generator.permutation(len(words)).tolist():
        if num >= budget:
            break
        n = 1 + int(np.searchsorted(cumulative, generator.random())) if longest > 1 else 1
        stop = min(start + min(n, longest), len(words))
        while stop > start and num + int(sizes[start:stop].sum()) > budget:
            stop -= 1
        if stop == start or taken[start:stop].any():
            continue
        taken[start:stop] = True
        num += int(sizes[start:stop].sum())
        chosen += words[start:stop]
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)


def geometric_lengths(p: float, longest: int) -> np.ndarray:
    r"""\(P(k) \propto p (1-p)^{k-1}\) for k = 1..`longest`, float64 (longest,); its mean is 3.80 for p = .2, 10."""
    weights = p * (1 - p) ** np.arange(longest)
    return weights / weights.sum()


def word_spans(
    words: list[np.ndarray], budget: int, lengths: np.ndarray, generator: np.random.Generator
) -> list[np.ndarray]:
    """Positions of spans of whole words, up to `budget` tokens in all; adjacent spans are one (SpanBERT).

    A span's length in words has the probabilities `lengths` (of 1, 2, ...); its anchor is uniform over tokens, snapped
    to the start of its word, and drawn again where it is taken. The budget may cut the last span within a word.
    """
    places = np.concatenate(words) if words else np.zeros(0, dtype=np.int64)
    word_of = np.repeat(np.arange(len(words)), [len(word) for word in words]) if words else places
    taken = np.zeros(len(places), dtype=bool)
    first = np.concatenate([[0], np.cumsum([len(word) for word in words])])
    cumulative, budget = np.cumsum(lengths), min(budget, len(places))
    while (num := int(taken.sum())) < budget:
        length = 1 + min(int(np.searchsorted(cumulative, generator.random(), side="right")), len(lengths) - 1)
        anchor = int(generator.integers(len(places)))
        if taken[anchor]:
            continue
        word = int(word_of[anchor])
        span = np.arange(first[word], first[min(word + length, len(words))])
        new = span[~taken[span]][: budget - num]
        taken[new] = True
    chosen = np.flatnonzero(taken)
    breaks = np.flatnonzero(np.diff(places[chosen]) > 1) + 1
    return np.split(places[chosen], breaks) if len(chosen) else []
