"""1 − PWCCA between layers of token samples, with error bars that cost a few decompositions, not hundreds."""

# G group of bootstrap blocks, D width; leading dimension G+1 of covariances: all rows, then all rows but group g

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS, stream
from infoflow.results import estimate, linear_replicates

from ._cca import Whitening, canonical_of_covariance, column_floor, whiten
from ._pwcca import weighted_mean

_WIDE = 256
_GROUPS_OF_WIDE = 16
"""Each group costs a decomposition per layer; 64 of them take minutes above a width of 256."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockGroups:
    """Groups of bootstrap blocks that are left out one at a time."""

    num_groups: int
    order: Int[Tensor, " token"]
    """Rows sorted by group."""
    counts: Int[Tensor, " group"]

    @classmethod
    def of(cls, blocks: Int[np.ndarray, " token"], width: int) -> "BlockGroups":
        """As many groups as blocks, or fewer where the states are wide."""
        num_groups = NUM_BLOCKS if width <= _WIDE else _GROUPS_OF_WIDE
        groups = torch.from_numpy(blocks % num_groups)
        return cls(num_groups, groups.argsort(stable=True), groups.bincount(minlength=num_groups))

    def covariances(
        self, x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]
    ) -> Float[Tensor, "leave_out width_x width_y"]:
        """Unnormalised cross-covariances of centred views in group order: of all rows, then without each group."""
        parts_x, parts_y = x.split(self.counts.tolist()), y.split(self.counts.tolist())
        products = torch.stack([a.mT @ b for a, b in zip(parts_x, parts_y, strict=True)])
        sums_x, sums_y = (torch.stack([part.sum(0) for part in parts]) for parts in (parts_x, parts_y))
        total = products.sum(0)
        rest = (self.counts.sum() - self.counts).clamp(min=1).to(x.dtype)
        # The rows left are no longer centred: their mean is minus the group's sum over their number.
        shift = sums_x.unsqueeze(2) * sums_y.unsqueeze(1) / rest[:, None, None]
        return torch.cat([total.unsqueeze(0), total - products - shift])

    def replicates(self, values: Float[np.ndarray, " leave_out"]) -> Float[np.ndarray, " replicate"]:
        """Bootstrap replicates (`linear_replicates`) from the values of all rows, then without each group.

        A group's effect is spread over its blocks; the root keeps its variance.
        """
        effects = (values[0] - values[1:]) / np.sqrt(NUM_BLOCKS / self.num_groups)
        return linear_replicates(values[0], values[0] - effects[np.arange(NUM_BLOCKS) % self.num_groups])


class LayerView:
    """One layer's states, centred and in group order, with its whitenings."""

    def __init__(self, states: Float[np.ndarray, "token width"], groups: BlockGroups) -> None:
        raw = torch.from_numpy(states).to(torch.float64)[groups.order]
        self.groups, self._floor = groups, column_floor(raw)
        self.centred = raw - raw.mean(0)

    @cached_property
    def whitening(self) -> Whitening:
        """Of all rows, then without each group; shared by every pair the layer is in."""
        return whiten(self.groups.covariances(self.centred, self.centred), self._floor)


def distance_columns(x: LayerView, y: LayerView, side: str) -> dict:
    """Estimate columns of 1 − PWCCA between two layers of the same occurrences."""
    cross = x.groups.covariances(x.centred, y.centred)
    values = 1 - weighted_mean(canonical_of_covariance(x.whitening, y.whitening, cross), side).numpy()
    return estimate(
        value=values[0],
        replicates=x.groups.replicates(values),
        baseline=_shuffled_distance(x, y, side),
        count=len(x.centred),
    )


def _shuffled_distance(x: LayerView, y: LayerView, side: str) -> float:
    """The distance of two layers whose rows have nothing to do with each other."""
    order = torch.from_numpy(stream("pwcca-baseline").permutation(len(y.centred)))
    cross = x.centred.mT @ y.centred[order]
    shuffled = canonical_of_covariance(_of_all_rows(x.whitening), _of_all_rows(y.whitening), cross)
    return 1 - float(weighted_mean(shuffled, side))


def _of_all_rows(whitening: Whitening) -> Whitening:
    return Whitening(
        basis=whitening.basis[0],
        loadings=whitening.loadings[0],
        rank=whitening.rank[0],
        smallest=whitening.smallest[0],
    )
