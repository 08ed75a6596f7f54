"""word2vec's sampling of words, windows and negatives, one sentence at a time."""

# P pair, K negative

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError

from ._batch import UNSUPERVISED
from ._masking import text_counts

Subsampling = Literal["code", "paper"]
_FLATTENED = 0.75  # exponent of the frequencies for drawing negatives


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordFrequencies:
    """Statistics of the training text for sampling; ids that are too rare or not text have 0."""

    kept: Float[np.ndarray, " id"]  # probability that an occurrence is kept
    negatives: Float[np.ndarray, " id"]  # cumulative probability of being drawn as a negative


def keep_probability(
    frequency: Float[np.ndarray, " id"], threshold: float, rule: Subsampling = "code"
) -> Float[np.ndarray, " id"]:
    r"""Probability that an occurrence of a word with the relative `frequency` f stays in the text.

    $$ \min\left(1, \left(\sqrt{f/t} + 1\right) \frac{t}{f}\right) $$

    is the released code's; the paper's is \(\sqrt{t/f}\) (it discards with probability \(1 - \sqrt{t/f}\); unverified).
    """
    with np.errstate(divide="ignore"):
        rarity = threshold / np.asarray(frequency, dtype=np.float64)
    share = np.sqrt(rarity) if rule == "paper" else np.sqrt(rarity) + rarity
    return np.minimum(share, 1.0)


def word_frequencies(
    vocabulary: Vocabulary, min_count: int, threshold: float, rule: Subsampling = "code"
) -> WordFrequencies:
    """Frequencies of the words with at least `min_count` occurrences in the training text.

    Raises:
        UserError: The vocabulary has no token counts, or no token occurs this often.
    """
    return _frequencies(_ByIdentity(text_counts(vocabulary)), vocabulary.special, min_count, threshold, rule)


def word_pairs(
    tokens: Int[np.ndarray, " token"], half: Int[np.ndarray, " token"]
) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """Each token with those at most `half` positions away: centers and contexts, by center, then by position.

    >>> [part.tolist() for part in word_pairs(np.array([7, 8, 9]), np.array([2, 1, 1]))]
    [[7, 7, 8, 8, 9], [8, 9, 7, 9, 8]]
    """
    places = np.arange(len(tokens))
    apart = np.abs(places[:, None] - places)
    center, context = np.nonzero((apart > 0) & (apart <= half[:, None]))
    return tokens[center], tokens[context]


def draw_negatives(
    contexts: Int[np.ndarray, " pair"],
    number: int,
    cumulative: Float[np.ndarray, " id"],
    generator: np.random.Generator,
) -> Int[np.ndarray, "pair negative"]:
    """`number` draws for each pair by cumulative probability.

    A draw equal to the pair's own context is not repeated but left out (`UNSUPERVISED`).
    """
    drawn = np.searchsorted(cumulative, generator.random((len(contexts), number)), side="right")
    return np.where(drawn == contexts[:, None], UNSUPERVISED, drawn).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _ByIdentity:
    """An array as a dictionary key, by identity: vocabularies are compared without their counts."""

    counts: np.ndarray

    def __hash__(self) -> int:
        return id(self.counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.counts is self.counts


@lru_cache(maxsize=8)
def _frequencies(
    key: _ByIdentity, special: tuple[int, ...], min_count: int, threshold: float, rule: Subsampling
) -> WordFrequencies:
    counts = np.asarray(key.counts, dtype=np.float64).copy()
    counts[list(special)] = 0
    counts[counts < min_count] = 0
    known = counts > 0
    if not known.any():
        raise UserError(
            f"skip-gram reads words that occur at least {min_count} times in the training text. Got none.\n"
            "Give more text, or lower min_count under [variants.NAME]."
        )
    kept = np.where(known, keep_probability(np.where(known, counts, 1) / counts.sum(), threshold, rule), 0.0)
    cumulative = np.cumsum(counts**_FLATTENED)
    cumulative /= cumulative[-1]  # exactly 1 from the last known id on, which no draw reaches
    return WordFrequencies(kept=kept, negatives=cumulative)
