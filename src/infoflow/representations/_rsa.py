"""Representational similarity analysis of two views, and of all pairs of layers with one ranking per layer."""

import math

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from infoflow.foundation import UserError

from ._block_groups import BlockGroups
from ._views import Matrix, States, as_view, as_views, centred

DISSIMILARITIES = ("cosine", "euclidean", "correlation")

_ROWS_AT_ONCE = 512
_DECIMALS = 12  # decimals kept, because equal angles differ beyond them by rounding, which must not affect ranks


def rsa(x: Matrix, y: Matrix, metric: str = "cosine") -> float:
    r"""Rank correlation of the distances between tokens in two views.

    Spearman's correlation of the upper triangles of the two dissimilarity matrices; ties get their average rank.
    Dissimilarity is $1 - \cos$, the Euclidean distance, or $1 -$ Pearson's correlation.

    Args:
        x: (token, width_x), float32 or float64; computed in float64.
        y: (token, width_y), the same tokens in the same order.
        metric: `"cosine"`, `"euclidean"` or `"correlation"`.

    Returns:
        Correlation in [−1, 1]; NaN if all distances of a view are equal.

    Raises:
        UserError: Unknown metric, fewer than 3 tokens, or a zero vector (constant for `"correlation"`), which has
            no direction.

    Source: [@kriegeskorte2008].

    >>> x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    >>> round(rsa(x, 3 * x.flip(1)), 6)
    1.0
    """
    ranks = (centred_ranks(view, metric) for view in as_views(x, y))
    unit_x, unit_y = (each / (np.linalg.norm(each) or math.nan) for each in ranks)
    return float(np.clip(unit_x @ unit_y, -1, 1))


def centred_ranks(x: Matrix, metric: str = "cosine") -> Float[np.ndarray, " pair"]:
    """Average ranks of the distances between all pairs of tokens, minus their mean.

    Pairs come row by row of the upper triangle.
    """
    from scipy.stats import rankdata  # slow import

    check_dissimilarity(metric)
    view = as_view(x, "x")
    if len(view) < 3:
        raise UserError(f"RSA needs at least 3 tokens. Got {len(view)}.")
    ranks = rankdata(_dissimilarities(view, metric))
    return ranks - ranks.mean()


def spearman_rows(first: Shaped[np.ndarray, "#row item"], second: Shaped[np.ndarray, "#row item"]) -> np.ndarray:
    """Spearman's rank correlation of each row, with mean ranks for ties; NaN if a row is constant."""
    from scipy.stats import rankdata  # slow import

    ranks = []
    for values in (first, second):
        ranked = rankdata(values, axis=1)
        ranks.append(ranked - ranked.mean(1, keepdims=True))
    spread = np.sqrt((ranks[0] ** 2).sum(1) * (ranks[1] ** 2).sum(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 0, (ranks[0] * ranks[1]).sum(1) / spread, np.nan)


def check_dissimilarity(metric: str) -> None:
    if metric not in DISSIMILARITIES:
        raise UserError(f'metric must be "cosine", "euclidean" or "correlation". Got {metric}.')


def _dissimilarities(x: States, metric: str) -> Float[np.ndarray, " pair"]:
    if metric == "euclidean":
        return torch.nn.functional.pdist(x).numpy()
    if metric == "correlation":
        x = centred(x.mT).mT
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    if bool((norms == 0).any()):
        raise UserError(
            f'{int((norms == 0).sum())} rows have no direction, so metric="{metric}" is undefined for them.'
        )
    units = x / norms
    pairs = [_cosines_above_diagonal(units, start) for start in range(0, len(x), _ROWS_AT_ONCE)]
    return (1 - torch.cat(pairs).round_(decimals=_DECIMALS)).numpy()


def _cosines_above_diagonal(units: States, start: int) -> Float[Tensor, " pair"]:
    """Cosines of each row of a block with all rows after it."""
    similar = units[start : start + _ROWS_AT_ONCE] @ units[start:].mT
    return torch.cat([cosines[row + 1 :] for row, cosines in enumerate(similar)])


_BINS = 256  # number of rank bins, used only for error bars, which need the distribution to a fraction of a percent


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

        When pairs are left out, all other ranks change too. So the change of the covariance of ranks has two parts: the
        products of the omitted pairs, and their effect on the ranks in either layer. For a pair at distance d in one
        layer, this effect is the sum of the other layer's ranks over pairs at larger distances.
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
    """For each pair, the sum of the ranks in `of` over all pairs farther apart in `at`, with half weight for ties."""
    sums = np.bincount(at.bins, of.ranks, minlength=_BINS)
    return ((sums[::-1].cumsum()[::-1] - sums / 2) / at.norm)[at.bins]
