"""How well predicted distances and depths recover trees: Spearman, UUAS, root accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ._tree_sentences import TreeSentence

LENGTHS = range(5, 51)
"""Sentence lengths in words that Spearman's macro-average covers."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TreeScores:
    """Scores of each sentence, in order; `spearman` is NaN if no correlation is defined."""

    length: np.ndarray
    spearman: np.ndarray
    """For distances: mean over words of the correlation of predicted and gold rows; for depths: one per sentence."""
    constant: np.ndarray
    """Number of constant rows (one row per word for distances, one for depths), for which no correlation is defined."""
    hits: np.ndarray
    """Number of correct edges in the minimum spanning tree (distances), or 1 if the root is found (depths)."""
    asked: np.ndarray
    """Number of gold edges between words that count, or 1 if the root counts."""

    @property
    def in_average(self) -> np.ndarray:
        """Sentences that enter Spearman's average."""
        return np.isfinite(self.spearman) & np.isin(self.length, LENGTHS)


def macro_average(scores: np.ndarray, lengths: np.ndarray, weights: np.ndarray | None = None) -> Any:
    r"""Mean over sentence lengths of the mean over sentences of one length; NaN if there is no sentence.

    Args:
        scores: One per sentence, (sentences,).
        lengths: Sentence lengths, (sentences,).
        weights: How often each sentence is drawn, (replicates, sentences); the result is then (replicates,).
    """
    drawn = np.ones((1, len(scores))) if weights is None else weights
    member = (lengths[:, None] == np.unique(lengths)).astype(np.float64)
    total, counts = (drawn * scores) @ member, drawn @ member
    with np.errstate(invalid="ignore", divide="ignore"):
        means = total / counts
        average = np.nansum(means, axis=1) / np.isfinite(means).sum(1)
    return average if weights is not None else float(average[0])


def distance_scores(sentences: Sequence[TreeSentence], predicted: Sequence[np.ndarray]) -> TreeScores:
    """Scores of predicted distances between words: any numbers that increase with distance.

    Source: [@hewitt2019structural]; here gold edges count if both words do, while theirs are edges of a spanning tree
    over gold distances.
    """
    spearman, constant, hits, asked = [], [], [], []
    for sentence, guess in zip(sentences, predicted, strict=True):
        rows = spearman_rows(guess, sentence.distances)
        spearman.append(np.nanmean(rows) if np.isfinite(rows).any() else np.nan)
        constant.append(int((~np.isfinite(rows)).sum()))
        gold = sentence.edges[np.ix_(sentence.counted, sentence.counted)]
        found = spanning_tree(guess[np.ix_(sentence.counted, sentence.counted)])
        hits.append(int((gold & found).sum() // 2))
        asked.append(int(gold.sum() // 2))
    return _scores(sentences, spearman, constant, hits, asked)


def depth_scores(sentences: Sequence[TreeSentence], predicted: Sequence[np.ndarray]) -> TreeScores:
    """Scores of predicted depths.

    The predicted root is the word of least depth among those that count; of m tied words each gets 1/m.

    A sentence whose root is punctuation or has no state has no root to find.

    Source: [@hewitt2019structural].
    """
    spearman, constant, hits, asked = [], [], [], []
    for sentence, guess in zip(sentences, predicted, strict=True):
        row = spearman_rows(guess[None], sentence.depths[None])[0]
        spearman.append(row)
        constant.append(int(not np.isfinite(row)))
        rooted = bool(((sentence.depths == 0) & sentence.counted).any())
        asked.append(int(rooted))
        least = sentence.counted & (guess == np.where(sentence.counted, guess, np.inf).min(initial=np.inf))
        hits.append(((sentence.depths == 0) & least).sum() / least.sum() if rooted else 0.0)
    return _scores(sentences, spearman, constant, hits, asked)


def spearman_rows(first: Float[np.ndarray, "row word"], second: Float[np.ndarray, "row word"]) -> np.ndarray:
    """Spearman's rank correlation of each row, with mean ranks for ties; NaN if a row is constant."""
    from scipy.stats import rankdata  # slow import

    ranks = []
    for values in (first, second):
        ranked = rankdata(values, axis=1)
        ranks.append(ranked - ranked.mean(1, keepdims=True))
    spread = np.sqrt((ranks[0] ** 2).sum(1) * (ranks[1] ** 2).sum(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 0, (ranks[0] * ranks[1]).sum(1) / spread, np.nan)


def spanning_tree(distances: Float[np.ndarray, "word word"]) -> Bool[np.ndarray, "word word"]:
    """Edges of the minimum spanning tree, symmetric."""
    from scipy.sparse.csgraph import minimum_spanning_tree  # slow import

    if len(distances) < 2:
        return np.zeros(distances.shape, dtype=bool)
    # An edge of length 0 would be dropped; adding a constant to all edges leaves the spanning tree unchanged.
    shifted = distances - distances.min() + 1.0
    found = minimum_spanning_tree(np.triu(shifted, k=1)).toarray() > 0
    return found | found.T


def chain(length: int) -> np.ndarray:
    """Distances in the tree that attaches each word to its neighbour: the usual parsing baseline."""
    place = np.arange(length, dtype=np.float64)
    return np.abs(place[:, None] - place)


def _scores(sentences: Sequence[TreeSentence], spearman: list, constant: list, hits: list, asked: list) -> TreeScores:
    return TreeScores(
        length=np.array([len(each) for each in sentences]),
        spearman=np.array(spearman, dtype=np.float64),
        constant=np.array(constant),
        hits=np.array(hits, dtype=np.float64),
        asked=np.array(asked, dtype=np.float64),
    )
