"""Which words are near an occurrence of a word, and how much a word's occurrences agree on them."""

# Q query, N occurrence, K neighbour, W word

import numpy as np
from jaxtyping import Bool, Float, Int


def nearest_of_other_words(
    states: Float[np.ndarray, "occurrence width"],
    word: Int[np.ndarray, " occurrence"],
    sentence: Int[np.ndarray, " occurrence"],
    queries: Int[np.ndarray, " query"],
    k: int,
) -> tuple[Int[np.ndarray, "query neighbour"], Float[np.ndarray, "query neighbour"]]:
    """For each query the `k` nearest words, each by its nearest occurrence, and their cosines; nearest first.

    Occurrences of the query's own word and of its own sentence do not count: the former would fill most slots, the
    latter are near whatever they mean. −1 and NaN for missing ones; the first wins ties.
    """
    unit = unit_vectors(states)
    cosine = unit[queries] @ unit.T
    cosine[(word[queries, None] == word) | (sentence[queries, None] == sentence)] = -np.inf
    order = np.argsort(word, kind="stable")
    starts = np.flatnonzero(np.diff(word[order], prepend=word[order[:1]] - 1))
    best = np.maximum.reduceat(cosine[:, order], starts, axis=1)
    words = np.argsort(-best, axis=1, kind="stable")[:, :k]
    nearest = np.full((len(queries), k), -1)
    values = np.full((len(queries), k), np.nan)
    ends = np.append(starts[1:], len(order))
    for query, place in np.argwhere(np.isfinite(np.take_along_axis(best, words, axis=1))):
        own = order[starts[words[query, place]] : ends[words[query, place]]]
        nearest[query, place] = own[np.argmax(cosine[query, own])]
        values[query, place] = cosine[query, nearest[query, place]]
    return nearest, values


def overlap(words: Int[np.ndarray, "query neighbour"]) -> Float[np.ndarray, "query query"]:
    r"""Jaccard overlap of the sets of words (−1: none) of every two queries; 0 for two empty ones.

    $$ |A \cap B| \, / \, |A \cup B| $$
    """
    known = np.unique(words[words >= 0])
    within = np.zeros((len(words), len(known)))
    rows, places = np.nonzero(words >= 0)
    within[rows, np.searchsorted(known, words[rows, places])] = 1
    both, size = within @ within.T, within.sum(axis=1)
    either = size[:, None] + size - both
    return np.divide(both, either, out=np.zeros_like(both), where=either > 0)


def disagreement(overlaps: Float[np.ndarray, "query query"], pairs: Bool[np.ndarray, "query query"]) -> float:
    """One minus the mean overlap of the chosen pairs of different queries; NaN without any."""
    chosen = pairs & ~np.eye(len(pairs), dtype=bool)
    return float(1 - overlaps[chosen].mean()) if chosen.any() else float("nan")


def two_groups(states: Float[np.ndarray, "occurrence width"]) -> Int[np.ndarray, " occurrence"]:
    """0 or 1 for each occurrence: whether it is nearer (cosine) to the one or the other of the two that are farthest
    apart; the first occurrence's group is 0.

    >>> two_groups(np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.9], [0.8, 0.1]])).tolist()
    [0, 1, 1, 0]
    """
    unit = unit_vectors(states)
    cosine = unit @ unit.T
    one, other = np.unravel_index(np.argmin(cosine), cosine.shape)
    group = (cosine[:, other] > cosine[:, one]).astype(np.int64)
    return group ^ group[0]


def unit_vectors(states: Float[np.ndarray, "row width"]) -> Float[np.ndarray, "row width"]:
    """Rows normalised to length 1 in double precision; a zero row is unchanged."""
    wide = np.asarray(states, dtype=np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)
