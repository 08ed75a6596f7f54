"""Which tokens to hide: single ones, whole words, n-grams of words, spans of words."""

from functools import cache
from itertools import accumulate, pairwise

import numpy as np

from infoflow.corpus import Vocabulary


def words_of(tokens: np.ndarray, vocabulary: Vocabulary) -> list[np.ndarray]:
    """Positions of each word, special tokens left out: a piece and those that continue it."""
    places = np.flatnonzero(~vocabulary.is_special[tokens])
    edges = [*np.flatnonzero(vocabulary.word_starts(tokens)[places]).tolist(), len(places)]
    return [places[first:end] for first, end in pairwise(edges)]


def bert_budget(num_tokens: int, num_candidates: int, rate: float, most: int) -> int:
    """How many tokens BERT predicts: `min(most, max(1, round(rate · len)))`, `len` with [CLS] and [SEP]."""
    return min(most, max(1, round(rate * num_tokens)), num_candidates)


def n_grams(words: list[np.ndarray], budget: int, longest: int, generator: np.random.Generator) -> np.ndarray:
    r"""Positions of n-grams of whole words, \(P(n) \propto 1/n\) for n up to `longest`; starts in random order.

    An n-gram that would exceed the budget is cut to fewer words, one that overlaps an earlier one is passed over
    (ALBERT's `create_masked_lm_predictions`).
    """
    shares = 1 / np.arange(1, longest + 1)
    starts = generator.permutation(len(words)).tolist()
    wanted = np.searchsorted(np.cumsum(shares / shares.sum())[:-1], generator.random(len(words)), side="right") + 1
    edges = [0, *accumulate(map(len, words))]  # a word's tokens, counted over all words
    taken, chosen, num = bytearray(len(words)), [], 0
    for start, n in zip(starts, wanted.tolist(), strict=True):
        if num >= budget:
            break
        stop = min(start + n, len(words))
        while stop > start and num + edges[stop] - edges[start] > budget:
            stop -= 1
        if stop == start or any(taken[start:stop]):
            continue
        taken[start:stop] = b"\1" * (stop - start)
        num += edges[stop] - edges[start]
        chosen += words[start:stop]
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)


@cache
def geometric_lengths(p: float, longest: int) -> np.ndarray:
    r"""\(P(k) \propto p (1-p)^{k-1}\) for k = 1..`longest`, float64 (longest,); its mean is 3.80 for p = .2, 10."""
    weights = p * (1 - p) ** np.arange(longest)
    weights /= weights.sum()
    weights.flags.writeable = False  # shared by every caller
    return weights


def word_spans(words: list[np.ndarray], budget: int, lengths: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Positions of spans of whole words, ascending, up to `budget` of them; adjacent spans are one (SpanBERT).

    A span's length in words has the probabilities `lengths` (of 1, 2, ...); its anchor is uniform over tokens, snapped
    to the start of its word, and drawn again where it is taken. The budget may cut the last span within a word.
    """
    if not words:
        return np.zeros(0, dtype=np.int64)
    places = np.concatenate(words)
    edges = [0, *accumulate(map(len, words))]
    word_of = np.repeat(np.arange(len(words)), np.diff(edges)).tolist()
    cumulative = np.cumsum(lengths)[:-1]
    taken, num, budget = bytearray(len(places)), 0, min(budget, len(places))
    while num < budget:
        # As many draws at once as seldom fall short: one for each token that is still wanted.
        drawn = 1 + np.searchsorted(cumulative, generator.random(budget - num), side="right")
        anchors = generator.integers(len(places), size=budget - num)
        for length, anchor in zip(drawn.tolist(), anchors.tolist(), strict=True):
            if num == budget:
                break
            if taken[anchor]:
                continue
            first = word_of[anchor]
            for place in range(edges[first], edges[min(first + length, len(words))]):
                if num < budget and not taken[place]:
                    taken[place], num = 1, num + 1
    return places[np.frombuffer(taken, dtype=np.uint8) > 0]
