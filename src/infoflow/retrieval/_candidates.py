"""Which passages a query may read: the best that are neither its own nor copies of each other, and the null passage."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ._found import Excluded, Found

NULL = -1
"""The id of the null passage among candidates, and of no passage among those found."""

Search = Callable[[int, Excluded | None], Found]
"""`.search` of an index with the queries given: k and exclusions to what is found."""


def candidates(search: Search, k: int, exclude: Sequence[Collection[int]], text_keys: np.ndarray) -> Found:
    """k passages of each query, without those excluded and without exact duplicates of text, of which the lowest id
    of the best stays.

    Fewer left means ids of −1, never an excluded one: what is asked for grows until k are left or all were seen.

    Args:
        search: Finds so many passages of every query.
        k: How many.
        exclude: Ids that each query must not read: where it comes from, and copies.
        text_keys: Hash of each passage's text (`Passages.text_keys`).
    """
    wanted = k
    while True:
        found = search(min(wanted, len(text_keys)), exclude)
        rows = [_distinct(ids, scores, k, text_keys) for ids, scores in zip(*found, strict=True)]
        full = all(len(ids) == k for ids, _ in rows)
        exhausted = wanted >= len(text_keys) or bool((found.ids == NULL).any(axis=1).all())
        if full or exhausted:
            return _padded(rows, k, found.scores.dtype)
        wanted *= 2


def without_excluded(ids: np.ndarray, exclude: Sequence[Collection[int]]) -> np.ndarray:
    """A passage of each query, int64 (query,): −1 where the query must not read it."""
    return np.array(
        [NULL if id in set(map(int, out)) else id for id, out in zip(ids.tolist(), exclude, strict=True)],
        dtype=np.int64,
    )


def _distinct(ids: np.ndarray, scores: np.ndarray, k: int, text_keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    there = ids != NULL
    ids, scores = ids[there], scores[there]
    # Found are by falling score, then rising id: the first of equal texts is the one that stays.
    _, first = np.unique(text_keys[ids], return_index=True)
    kept = np.sort(first)[:k]
    return ids[kept], scores[kept]


def _padded(rows: Sequence[tuple[np.ndarray, np.ndarray]], k: int, dtype: np.dtype) -> Found:
    ids, scores = np.full((len(rows), k), NULL, dtype=np.int64), np.full((len(rows), k), -np.inf, dtype=dtype)
    for row, (found, values) in enumerate(rows):
        ids[row, : len(found)], scores[row, : len(found)] = found, values
    return Found(ids, scores)
