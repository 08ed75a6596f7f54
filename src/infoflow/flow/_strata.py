"""Additional occurrences in a sample, so that frequent tokens do not crowd out rare ones."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

OUTSIDE = -1


@runtime_checkable
class Strata(Protocol):
    """Classes of token types by frequency rank, each sampled up to the same number of occurrences."""

    @property
    def size(self) -> int:
        """Maximum number of occurrences of each stratum."""
        ...

    @property
    def num(self) -> int:
        """Number of strata."""
        ...

    def of(self, ranks: np.ndarray) -> np.ndarray:
        """The stratum of each frequency rank (1 = most frequent; 0: unknown), or `OUTSIDE` without one."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RankStrata:
    """Half-open bins of frequency rank: [edges[i], edges[i+1]), `per_bin` occurrences of each."""

    edges: tuple[int, ...]
    per_bin: int

    @property
    def size(self) -> int:
        return self.per_bin

    @property
    def num(self) -> int:
        return len(self.edges) - 1

    def of(self, ranks: np.ndarray) -> np.ndarray:
        return rank_bins(ranks, self.edges)


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeStrata:
    """The `num_types` most frequent token types, `per_type` occurrences of each."""

    num_types: int
    per_type: int

    @property
    def size(self) -> int:
        return self.per_type

    @property
    def num(self) -> int:
        return self.num_types

    def of(self, ranks: np.ndarray) -> np.ndarray:
        return rank_bins(ranks, tuple(range(1, self.num_types + 2)))


def rank_bins(ranks: np.ndarray, edges: tuple[int, ...]) -> np.ndarray:
    """The bin of each rank: i where edges[i] ≤ rank < edges[i+1], `OUTSIDE` elsewhere and at rank 0 (unknown)."""
    bins = np.searchsorted(np.asarray(edges), ranks, side="right") - 1
    return np.where((bins >= len(edges) - 1) | (ranks < 1), OUTSIDE, bins).astype(np.int64)


def first_of_each(strata: np.ndarray, size: int) -> np.ndarray:
    """Mask of the rows (in order) among the first `size` of their stratum; False outside."""
    order = np.argsort(strata, kind="stable")
    ordered = strata[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    chosen = np.zeros(len(strata), dtype=bool)
    chosen[order] = np.arange(len(strata)) - starts < size
    return chosen & (strata != OUTSIDE)
