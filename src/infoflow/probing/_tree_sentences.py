"""Trees of sentences as distances and depths, and words that do not count as syntax."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

PUNCTUATION = frozenset({"''", "``", ",", ".", ":", "-LRB-", "-RRB-"})
"""Penn Treebank's part-of-speech tags of punctuation."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TreeSentence:
    """The words of one sentence that have states, and where they stand in its tree."""

    rows: Int[np.ndarray, " word"]
    """Of the words in the states."""
    distances: Float[np.ndarray, "word word"]
    """Edges on the way from word to word; words left out may lie on it."""
    depths: Float[np.ndarray, " word"]
    """Edges from the root, whose depth is 0."""
    edges: Bool[np.ndarray, "word word"]
    """Whether one governs the other, in either direction; symmetric."""
    counted: Bool[np.ndarray, " word"]
    """Words that UUAS and root accuracy look at: all but punctuation."""

    def __len__(self) -> int:
        return len(self.rows)


def tree_distances(heads: Sequence[int]) -> tuple[np.ndarray, np.ndarray] | None:
    """Distances between all words and depths below the root, in edges; None where the heads are no one tree.

    No one tree: several roots or none, a circle, a part that hangs on nothing, a head outside the sentence.

    Args:
        heads: Index of each word's governor, −1 for the root.
    """
    num = len(heads)
    given = np.asarray(heads, dtype=np.int64)
    if num == 0 or (given < -1).any() or (given >= num).any() or (given == -1).sum() != 1:
        return None
    way = np.eye(num, dtype=bool)  # way[w, a]: a is w or stands above it
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
    """A sentence whose words stand in the states from `first_row` on; None where its heads are no one tree.

    Args:
        heads: As `tree_distances`.
        first_row: Of the first word.
        present: Words that have a state.
        counted: Words that are no punctuation.
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
    """Which words are no punctuation: by the tags of the Penn Treebank, else by PUNCT, else by a letter or digit."""
    if xpos is not None:
        return np.array([tag not in PUNCTUATION for tag in xpos], dtype=bool)
    if upos is not None:
        return np.array([tag != "PUNCT" for tag in upos], dtype=bool)
    return np.array([any(char.isalnum() for char in word) for word in words], dtype=bool)
