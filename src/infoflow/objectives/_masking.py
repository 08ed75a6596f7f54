"""Masking: the choice of tokens, and their replacements."""

from bisect import bisect_right
from functools import cache
from typing import Literal, NamedTuple

import numpy as np

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError, read_only


class Words(NamedTuple):
    """The words of a text: word `i` is `places[edges[i]:edges[i + 1]]`."""

    places: np.ndarray  # positions of all tokens but special ones, ascending
    edges: list[int]  # one more edge than words

    @property
    def num(self) -> int:
        return len(self.edges) - 1


def words_of(tokens: np.ndarray, vocabulary: Vocabulary) -> Words:
    """The words of a text, each of which is a piece with its continuations; special tokens are left out."""
    places = (~vocabulary.is_special[tokens]).nonzero()[0]
    return Words(places, [*vocabulary.word_starts(tokens)[places].nonzero()[0].tolist(), len(places)])


def bert_budget(num_tokens: int, num_candidates: int, rate: float, most: int) -> int:
    """Number of tokens that BERT predicts: `min(most, max(1, round(rate · len)))`, `len` with [CLS] and [SEP]."""
    return min(most, max(1, round(rate * num_tokens)), num_candidates)


def n_grams(words: Words, budget: int, longest: int, generator: np.random.Generator) -> np.ndarray:
    r"""Positions of n-grams of whole words, ascending; \(P(n) \propto 1/n\) for n up to `longest`.

    Their first words are visited in random order. An n-gram that would exceed the budget is cut to fewer words, and an
    n-gram that overlaps an earlier one is skipped (as in ALBERT's `create_masked_lm_predictions`).
    """
    edges, num_words = words.edges, words.num
    starts = generator.permutation(num_words).tolist()
    wanted = _inverse_lengths(longest).searchsorted(generator.random(num_words), side="right").tolist()
    taken, num = bytearray(len(words.places)), 0  # of tokens
    for start, more in zip(starts, wanted, strict=True):
        if num >= budget:
            break
        first, stop = edges[start], min(start + more + 1, num_words)
        while stop > start and num + edges[stop] - first > budget:
            stop -= 1
        if stop == start or any(taken[first : edges[stop]]):
            continue
        taken[first : edges[stop]] = b"\1" * (edges[stop] - first)
        num += edges[stop] - first
    return words.places[np.frombuffer(taken, dtype=np.bool_)]


@cache
def _inverse_lengths(longest: int) -> np.ndarray:
    r"""Cumulative probabilities of \(P(n) \propto 1/n\), n = 1..`longest`, without the last one."""
    shares = 1 / np.arange(1, longest + 1)
    return read_only(np.cumsum(shares / shares.sum())[:-1])


@cache
def geometric_lengths(p: float, longest: int) -> np.ndarray:
    r"""Cumulative probabilities of \(P(k) \propto p (1-p)^{k-1}\), k = 1..`longest`, without the last one."""
    weights = p * (1 - p) ** np.arange(longest)
    return read_only(np.cumsum(weights / weights.sum())[:-1])


def word_spans(words: Words, budget: int, lengths: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Positions of spans of whole words, ascending, up to `budget` of them; adjacent spans merge (SpanBERT).

    A span has 1, 2, ... words with the cumulative probabilities `lengths`. Its first token is drawn uniformly, moved to
    the start of its word, and drawn again if it is taken. The budget may cut the last span within a word.
    """
    edges, num_words, num_tokens = words.edges, words.num, len(words.places)
    taken, num, budget = bytearray(num_tokens), 0, min(budget, num_tokens)
    while num < budget:
        # Draws come in blocks of one draw for each token still needed, which is rarely too few.
        drawn = lengths.searchsorted(generator.random(budget - num), side="right").tolist()
        anchors = generator.integers(num_tokens, size=budget - num).tolist()
        for more, anchor in zip(drawn, anchors, strict=True):
            if num == budget:
                break
            if taken[anchor]:
                continue
            first = bisect_right(edges, anchor) - 1
            for index in range(edges[first], edges[min(first + more + 1, num_words)]):
                if num < budget and not taken[index]:
                    taken[index], num = 1, num + 1
    return words.places[np.frombuffer(taken, dtype=np.bool_)]


RandomIds = Literal["ordinary", "all", "corpus"]
"""Source of random tokens: all ids except special ones, all ids, or the training text (with its frequencies)."""


def hide(
    tokens: np.ndarray,
    positions: np.ndarray,
    generator: np.random.Generator,
    vocabulary: Vocabulary,
    objective: str,
    *,
    mask_share: float = 0.8,
    random_share: float = 0.1,
    random_ids: RandomIds = "ordinary",
    together: np.ndarray | None = None,
) -> np.ndarray:
    """Return `tokens` with each of `positions` replaced by [MASK] or by a random token, or kept.

    `generator` first draws what happens to each position, and then the random tokens. Positions with the same number in
    `together` (chosen,), counted from 0, are treated alike, as the tokens of a span are. The error for a missing [MASK]
    names `objective`.
    """
    mask = mask_id(vocabulary, objective)
    num_fates = len(positions) if together is None else int(together.max(initial=-1)) + 1
    fate = generator.random(num_fates)
    fate = fate if together is None else fate[together]
    masked = fate < mask_share
    swapped = positions[~masked & (fate < mask_share + random_share)]
    noisy = tokens.copy()
    noisy[positions[masked]] = mask
    if len(swapped):
        noisy[swapped] = random_tokens(len(swapped), generator, vocabulary, random_ids)
    return noisy


def random_tokens(
    num: int, generator: np.random.Generator, vocabulary: Vocabulary, random_ids: RandomIds = "ordinary"
) -> np.ndarray:
    """`num` token ids drawn independently, int64 (num,)."""
    if random_ids == "all":
        return generator.integers(vocabulary.size, size=num)
    if random_ids == "ordinary":
        return vocabulary.ordinary[generator.integers(len(vocabulary.ordinary), size=num)]
    cumulative = vocabulary.cumulative_counts
    if cumulative is None:
        raise _uncounted()
    drawn = np.searchsorted(cumulative, generator.random(num) * cumulative[-1], side="right")
    return vocabulary.ordinary[drawn]


def text_counts(vocabulary: Vocabulary) -> np.ndarray:
    if vocabulary.counts is None:
        raise _uncounted()
    return vocabulary.counts


def _uncounted() -> UserError:
    return UserError(
        "This objective draws tokens by their frequency in the training text, and the vocabulary has none.\n"
        "Give it with Vocabulary.with_counts(token_frequencies(encoded, size))."
    )


def mask_id(vocabulary: Vocabulary, objective: str) -> int:
    if vocabulary.mask is None:
        raise UserError(f"{objective} needs a mask token. Got a tokenizer without one: set its mask_token.")
    return vocabulary.mask
