"""Constituents derived from a dependency tree: a word with all words that depend on it."""

from collections.abc import Sequence


def universal(relation: str) -> str:
    """The universal part of a relation: `nmod` of `nmod:poss`."""
    return relation.partition(":")[0]


def subtrees(heads: Sequence[int]) -> list[list[int]]:
    """The words of each word's subtree, including the word itself, in order.

    >>> subtrees([1, -1, 1])
    [[0], [0, 1, 2], [2]]
    """
    found: list[list[int]] = [[] for _ in heads]
    for word in range(len(heads)):
        upper = word
        while upper != -1:
            found[upper].append(word)
            upper = heads[upper]
    return found


def span(words: Sequence[int]) -> tuple[int, int] | None:
    """The span [start, end) of these words if they are contiguous, else None.

    >>> span([2, 3, 4]), span([2, 4])
    ((2, 5), None)
    """
    return (words[0], words[-1] + 1) if words[-1] - words[0] == len(words) - 1 else None


def above(word: int, heads: Sequence[int]) -> list[int]:
    """Head words of the subtrees of at least two words that contain a word, smallest first.

    >>> above(0, [1, 2, -1, 2]), above(1, [1, 2, -1, 2])
    ([1, 2], [1, 2])
    """
    found: list[int] = []
    upper = word if word in heads else heads[word]
    while upper != -1:
        found.append(upper)
        upper = heads[upper]
    return found


def dependents(word: int, heads: Sequence[int]) -> list[int]:
    """The words that depend on a word, in order."""
    return [other for other, head in enumerate(heads) if head == word]


def depth(heads: Sequence[int]) -> int:
    """Number of edges on the longest path from a root to a word.

    >>> depth([1, -1, 1, 2])
    2
    """
    return max((_steps(word, heads) for word in range(len(heads))), default=0)


def _steps(word: int, heads: Sequence[int]) -> int:
    steps = 0
    while (word := heads[word]) != -1:
        steps += 1
    return steps
