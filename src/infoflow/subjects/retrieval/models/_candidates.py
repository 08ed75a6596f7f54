"""The passages that a query may read: the best ones except its own and copies, and the null passage."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from ._found import Excluded, Found

NULL = -1
"""The id of the null passage among candidates, and of an empty slot in results."""

Search = Callable[[int, Excluded | None], Found]
"""`.search` of an index with fixed queries: k and exclusions to results."""


def candidates(search: Search, k: int, exclude: Sequence[Collection[int]], text_keys: np.ndarray) -> Found:
    """The k best passages of each query, without excluded ones and exact duplicates (the best, then lowest id is kept).

    If fewer remain, ids are −1: the search grows until k remain or all passages were seen.

    Args:
        search: Returns the requested number of passages for every query.
        k: Number of results.
        exclude: Ids that each query must not read: its origin, and copies.
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
    """One passage per query, int64 (query,): −1 if the query must not read it."""
    return np.array(
        [NULL if id in set(map(int, out)) else id for id, out in zip(ids.tolist(), exclude, strict=True)],
        dtype=np.int64,
    )


def _distinct(ids: np.ndarray, scores: np.ndarray, k: int, text_keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    there = ids != NULL
    ids, scores = ids[there], scores[there]
    # Results are sorted by falling score, then rising id: the first of equal texts is kept.
    _, first = np.unique(text_keys[ids], return_index=True)
    kept = np.sort(first)[:k]
    return ids[kept], scores[kept]


def _padded(rows: Sequence[tuple[np.ndarray, np.ndarray]], k: int, dtype: np.dtype) -> Found:
    ids, scores = np.full((len(rows), k), NULL, dtype=np.int64), np.full((len(rows), k), -np.inf, dtype=dtype)
    for row, (found, values) in enumerate(rows):
        ids[row, : len(found)], scores[row, : len(found)] = found, values
    return Found(ids, scores)
