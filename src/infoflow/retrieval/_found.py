"""What a search finds, and the one rule for ties: the higher score, then the lower id."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from infoflow.foundation import UserError

Excluded = Sequence[Collection[int]]
"""Ids that each query must not find."""


class Found(NamedTuple):
    """Passages of each query, best first; id −1 and score −inf where nothing is."""

    ids: np.ndarray  # int64 (query, k)
    scores: np.ndarray  # float (query, k)


@runtime_checkable
class Searches(Protocol):
    """What finds passages: an index of this room, or an adapter of a vector database."""

    def __len__(self) -> int:
        """How many passages there are; their ids are 0 to one less."""
        ...

    def search(self, queries: Any, k: int, exclude: Excluded | None = None) -> Found:
        """The k best passages of each query, by higher score, then lower id; none that it must not find.

        Args:
            queries: Vectors (query, width), or terms of each.
            k: How many; where there are fewer the rest are id −1 and score −inf.
            exclude: Ids that each query must not find.
        """
        ...


def check_search(k: int, num_queries: int, exclude: Excluded | None) -> list[set[int]]:
    """The excluded ids of each query as sets.

    Raises:
        UserError: k below 1, or another number of exclusions than of queries.
    """
    if k < 1:
        raise UserError(f"k must be at least 1. Got {k}.")
    if exclude is None:
        return [set() for _ in range(num_queries)]
    if len(exclude) != num_queries:
        raise UserError(f"exclude must name ids for each of {num_queries} queries. Got {len(exclude)}.")
    return [{int(id) for id in one if id >= 0} for one in exclude]


def best(ids: np.ndarray, scores: np.ndarray, k: int, excluded: set[int]) -> tuple[np.ndarray, np.ndarray]:
    """The first k of one query's candidates by the rule for ties, without those excluded and those of score −inf."""
    kept = scores > -np.inf
    if excluded:
        kept &= ~np.isin(ids, list(excluded))
    ids, scores = ids[kept], scores[kept]
    order = np.lexsort((ids, -scores))[:k]
    found, values = np.full(k, -1, dtype=np.int64), np.full(k, -np.inf, dtype=scores.dtype)
    found[: len(order)], values[: len(order)] = ids[order], scores[order]
    return found, values


def nearest_few(scores: np.ndarray, k: int) -> np.ndarray:
    """Places of the k highest scores and of all that tie with the last of them, in no order."""
    if len(scores) <= k:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    return np.flatnonzero(scores >= least)
