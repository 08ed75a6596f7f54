"""RSA over a grid of layers: each layer's distances are ranked once, and error bars need no second ranking."""

import math

import numpy as np
from jaxtyping import Float, Int

from ._paired_distance import BlockGroups

_BINS = 256
"""Rank bins, for the error bars only, which need the distribution to a fraction of a percent."""


class ItemPairs:
    """All pairs of items, row by row of the upper triangle, and which groups of bootstrap blocks they touch."""

    def __init__(self, groups: BlockGroups) -> None:
        self.groups = groups
        self.num_items = len(groups.order)
        self._group = np.repeat(np.arange(groups.num_groups), groups.counts.numpy())
        self._rows = np.cumsum([0, *range(self.num_items - 1, 0, -1)])  # where each item's pairs start
        later = [self._group[row + 1 :] for row in range(self.num_items - 1)]
        self._partner = np.concatenate(later).astype(np.uint8)
        self._bounds = self._rows[np.searchsorted(self._group, np.arange(groups.num_groups + 1)).clip(max=len(later))]

    def __len__(self) -> int:
        return len(self._partner)

    def sums(self, values: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " group"]:
        """Sums over the pairs that touch each group, in one item or both."""
        totals = np.zeros(self.groups.num_groups)
        for group, (start, stop) in enumerate(zip(self._bounds[:-1], self._bounds[1:], strict=True)):
            partners = np.bincount(self._partner[start:stop], values[start:stop], minlength=len(totals))
            totals += partners
            totals[group] += partners.sum() - partners[group]
        return totals

    def under(self, order: Int[np.ndarray, " token"]) -> Int[np.ndarray, " pair"]:
        """For each pair (i, j) the index of the pair (order[i], order[j])."""
        places = np.empty(len(self), dtype=np.int64)
        for row in range(self.num_items - 1):
            low, high = np.minimum(order[row], order[row + 1 :]), np.maximum(order[row], order[row + 1 :])
            places[self._rows[row] : self._rows[row + 1]] = self._rows[low] + high - low - 1
        return places


class RankedSpace:
    """One layer's distances between items as ranks, shared by all its pairs of layers."""

    def __init__(self, ranks: Float[np.ndarray, " pair"], pairs: ItemPairs) -> None:
        """Ranks as in `centred_ranks`, of items in group order; all equal if no order is defined."""
        self.pairs, self.norm = pairs, float(np.linalg.norm(ranks)) or math.nan
        self.bins = ((ranks / len(ranks) + 0.5) * _BINS).astype(np.int16).clip(0, _BINS - 1)
        self.ranks = ranks / self.norm
        self._own_changes: np.ndarray | None = None

    def correlation(self, other: "RankedSpace") -> float:
        """Spearman's correlation, as in `rsa`."""
        return float(np.clip(self.ranks @ other.ranks, -1, 1))

    def values(self, other: "RankedSpace") -> Float[np.ndarray, " leave_out"]:
        """The correlation, then without each group of items to first order.

        When pairs are left out, all other ranks move too. So the change of the covariance of ranks is the omitted
        pairs' own products and their effect on the ranks of either side: for a pair at distance d in one layer, the sum
        of the other layer's ranks over pairs at larger distances.
        """
        correlation = self.correlation(other)
        own = (self.own_changes + other.own_changes) / 2  # of the variances: not 0 with ties
        return np.concatenate([[correlation], correlation + self._changes(other) - correlation * own])

    @property
    def own_changes(self) -> Float[np.ndarray, " group"]:
        """Changes of the variance of ranks, by group left out."""
        if self._own_changes is None:
            self._own_changes = self._changes(self)
        return self._own_changes

    def _changes(self, other: "RankedSpace") -> Float[np.ndarray, " group"]:
        products = self.ranks * other.ranks
        influence = products + _farther(self, other) + _farther(other, self) - 3 * products.sum() / len(products)
        return -self.pairs.sums(influence)


def _farther(at: RankedSpace, of: RankedSpace) -> Float[np.ndarray, " pair"]:
    """For each pair the sum of `of`'s ranks over the pairs that are farther apart in `at`; ties count half."""
    sums = np.bincount(at.bins, of.ranks, minlength=_BINS)
    return ((sums[::-1].cumsum()[::-1] - sums / 2) / at.norm)[at.bins]
