"""Results of a search, and the one rule for ties: the higher score, then the lower id."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from infoflow.foundation import UserError

Excluded = Sequence[Collection[int]]
"""Ids to exclude for each query."""


class Found(NamedTuple):
    """Passages of each query, best first; id −1 and score −inf mark empty slots."""

    ids: np.ndarray  # int64 (query, k)
    scores: np.ndarray  # float (query, k)


@runtime_checkable
class Searches(Protocol):
    """A search over passages: an index of this package, or an adapter of a vector database."""

    def __len__(self) -> int:
        """Number of passages; ids run from 0."""
        ...

    def search(self, queries: Any, k: int, exclude: Excluded | None = None) -> Found:
        """The k best passages of each query that are not excluded, by higher score, then lower id.

        Args:
            queries: Vectors (query, width), or lists of terms.
            k: Number of results; missing ones have id −1 and score −inf.
            exclude: Ids to exclude for each query.
        """
        ...


def check_search(k: int, num_queries: int, exclude: Excluded | None) -> list[set[int]]:
    """The excluded ids of each query as sets.

    Raises:
        UserError: k is below 1, or the number of exclusions differs from the number of queries.
    """
    if k < 1:
        raise UserError(f"k must be at least 1. Got {k}.")
    if exclude is None:
        return [set() for _ in range(num_queries)]
    if len(exclude) != num_queries:
        raise UserError(f"exclude must name ids for each of {num_queries} queries. Got {len(exclude)}.")
    return [{int(id) for id in one if id >= 0} for one in exclude]


def best(ids: np.ndarray, scores: np.ndarray, k: int, excluded: set[int]) -> tuple[np.ndarray, np.ndarray]:
    """The first k of one query's candidates by the rule for ties, without excluded ones and scores of −inf."""
    kept = scores > -np.inf
    if excluded:
        kept &= ~np.isin(ids, list(excluded))
    ids, scores = ids[kept], scores[kept]
    order = np.lexsort((ids, -scores))[:k]
    found, values = np.full(k, -1, dtype=np.int64), np.full(k, -np.inf, dtype=scores.dtype)
    found[: len(order)], values[: len(order)] = ids[order], scores[order]
    return found, values


def nearest_few(scores: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k highest scores and of all ties with the last of them, unordered."""
    if len(scores) <= k:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    return np.flatnonzero(scores >= least)
