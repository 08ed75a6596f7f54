"""Trees of sentences as distances and depths, and scores of predicted distances and depths."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

# Trees of sentences as distances and depths, and the words that are not syntax.


_UNIVERSAL = frozenset({"PUNCT", ".", "PU"})
"""Part-of-speech tags of punctuation: Universal Dependencies, its 2012 predecessor, Chinese Treebank."""
_PENN = frozenset(
    {"''", "``", ",", ".", ":", "(", ")", "-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-", "HYPH", "NFP"}
)
_STTS = frozenset({"$,", "$.", "$(", "$["})
_UNKNOWN = frozenset({"", "_", "-", "--"})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TreeSentence:
    """The words of one sentence that have states, and their positions in its tree."""

    rows: Int[np.ndarray, " word"]
    """Row of each word in the states."""
    distances: Float[np.ndarray, "word word"]
    """Edges on the path between two words, which may pass through words left out."""
    depths: Float[np.ndarray, " word"]
    """Edges from the root, whose depth is 0."""
    edges: Bool[np.ndarray, "word word"]
    """Whether one word governs the other; symmetric."""
    counted: Bool[np.ndarray, " word"]
    """Words that count for UUAS and root accuracy: all but punctuation."""

    def __len__(self) -> int:
        return len(self.rows)


def tree_distances(heads: Sequence[int]) -> tuple[np.ndarray, np.ndarray] | None:
    """Distances between all words and depths below the root, in edges; None if the heads do not form one tree.

    This is the case if there are several roots or none, a cycle, a disconnected part, or a head outside the sentence.

    Args:
        heads: Index of each word's governor, −1 for the root.
    """
    num = len(heads)
    given = np.asarray(heads, dtype=np.int64)
    if num == 0 or (given < -1).any() or (given >= num).any() or (given == -1).sum() != 1:
        return None
    way = np.eye(num, dtype=bool)  # way[w, a]: a is w or an ancestor of it
    above = given.copy()
    for _ in range(num):
        going = above >= 0
        if not going.any():
            break
        way[np.flatnonzero(going), above[going]] = True
        above[going] = given[above[going]]
    else:
        return None
    sizes = way.sum(1)
    shared = way.astype(np.int64) @ way.T.astype(np.int64)
    return (sizes[:, None] + sizes[None] - 2 * shared).astype(np.float64), (sizes - 1).astype(np.float64)


def tree_sentence(
    heads: Sequence[int],
    first_row: int,
    present: Bool[np.ndarray, " word"],
    counted: Bool[np.ndarray, " word"],
) -> TreeSentence | None:
    """A sentence whose words occupy the states from `first_row` on; None if its heads do not form one tree.

    Args:
        heads: As in `tree_distances`.
        first_row: Row of the first word.
        present: Words that have a state.
        counted: Words that are not punctuation.
    """
    found = tree_distances(heads)
    if found is None:
        return None
    distances, depths = found
    kept = np.flatnonzero(present)
    return TreeSentence(
        rows=first_row + kept,
        distances=distances[np.ix_(kept, kept)],
        depths=depths[kept],
        edges=distances[np.ix_(kept, kept)] == 1,
        counted=counted[kept],
    )


def is_syntax(words: Sequence[str], xpos: Sequence[str] | None, upos: Sequence[str] | None) -> np.ndarray:
    """Which words are not punctuation.

    UPOS decides or, if it is missing, XPOS with a known tag set (Penn Treebank, STTS, Chinese Treebank). Otherwise a
    word is punctuation if it consists only of Unicode punctuation.
    """
    unknown = ("_",) * len(words)
    rows = zip(words, xpos or unknown, upos or unknown, strict=True)
    return np.array([not _is_punctuation(*row) for row in rows], dtype=bool)


def _is_punctuation(word: str, xpos: str, upos: str) -> bool:
    if upos not in _UNKNOWN:
        return upos in _UNIVERSAL
    if xpos in _UNIVERSAL | _PENN | _STTS:
        return True
    if xpos == "POS":  # the apostrophe of a possessive
        return False
    return all(char in "`´" or unicodedata.category(char)[0] == "P" for char in word)


# How well predicted distances and depths recover trees: Spearman, UUAS, root accuracy.


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

    Source: [@hewitt2019structural]. Here gold edges count if both of their words do; theirs are the edges of a spanning
    tree over gold distances.
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

    The predicted root is the word of smallest depth among those that count; each of m tied words gets 1/m. Sentences
    whose root is punctuation or has no state do not count.

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
