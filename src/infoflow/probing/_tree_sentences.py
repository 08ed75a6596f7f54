"""Trees of sentences as distances and depths, and the words that are not syntax."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

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

    Not one tree: several roots or none, a cycle, a disconnected part, a head outside the sentence.

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

    Decided by UPOS; if it is missing, by XPOS with a known tag set (Penn Treebank, STTS, Chinese Treebank); else a word
    counts unless it is Unicode punctuation alone.
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
