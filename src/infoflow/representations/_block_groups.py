"""Groups of bootstrap blocks that are left out one at a time, for statistics of whole matrices."""

# G group of bootstrap blocks; leading dimension G+1 of covariances: all rows, then all rows but group g

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS, Interval, Scale, block_interval
from infoflow.results import linear_replicates

from ._views import product

_WIDE = 256
_GROUPS_OF_WIDE = 16  # each group costs a decomposition per layer; 64 of them take minutes above a width of 256


@dataclass(frozen=True, slots=True, eq=False)
class BlockGroups:
    """Groups of bootstrap blocks that are left out one at a time."""

    num_groups: int
    order: Int[Tensor, " token"]  # rows sorted by group
    counts: Int[Tensor, " group"]

    @classmethod
    def of(cls, blocks: Int[np.ndarray, " token"], width: int, num_groups: int | None = None) -> "BlockGroups":
        """The groups: by default one for each block, or fewer for wide states."""
        if num_groups is None:
            num_groups = NUM_BLOCKS if width <= _WIDE else _GROUPS_OF_WIDE
        groups = torch.from_numpy(blocks % num_groups)
        return cls(num_groups, groups.argsort(stable=True), groups.bincount(minlength=num_groups))

    def covariances(
        self, x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]
    ) -> Float[Tensor, "leave_out width_x width_y"]:
        """Unnormalised cross-covariances of centred views in group order: of all rows, then without each group."""
        parts_x, parts_y = x.split(self.counts.tolist()), y.split(self.counts.tolist())
        products = torch.stack([product(a, b) for a, b in zip(parts_x, parts_y, strict=True)]).to(torch.float64)
        sums_x, sums_y = (
            torch.stack([part.sum(0, dtype=torch.float64) for part in parts]) for parts in (parts_x, parts_y)
        )
        total = products.sum(0)
        rest = (self.counts.sum() - self.counts).clamp(min=1).to(torch.float64)
        # The remaining rows are no longer centred: their mean is minus the group's sum, divided by their number.
        shift = sums_x.unsqueeze(2) * sums_y.unsqueeze(1) / rest[:, None, None]
        return torch.cat([total.unsqueeze(0), total - products - shift])

    def replicates(self, values: Float[np.ndarray, " leave_out"]) -> Float[np.ndarray, " replicate"]:
        """Bootstrap replicates (`linear_replicates`) from the values of all rows, then without each group.

        A group's effect is divided among its blocks; the square root preserves its variance.
        """
        effects = self._effects(values) / np.sqrt(NUM_BLOCKS / self.num_groups)
        return linear_replicates(values[0], values[0] - effects[np.arange(NUM_BLOCKS) % self.num_groups])

    def interval(self, value: float, values: Float[np.ndarray, " leave_out"], scale: Scale = "any") -> Interval:
        """The interval around `value`, given the values of all rows, then without each group."""
        return block_interval(value, self._effects(values), units=int((self.counts > 0).sum()), scale=scale)

    def _effects(self, values: Float[np.ndarray, " leave_out"]) -> Float[np.ndarray, " group"]:
        r"""Each group's contribution, without the effect of merely leaving out that many rows.

        $$ e_g = (1 - s_g)(v - v_{(g)}) - s_g \sum_h (1 - s_h)(v - v_{(h)}) $$

        s are the groups' shares of the rows. PWCCA is closer to 1 with fewer rows, so leaving out any rows lowers the
        distance, and a large group lowers it more. The second term removes this effect, because a new sample would have
        as many rows as this one.

        Source: [@busing1999], the pseudo-values of unequal groups.
        """
        shares = (self.counts / self.counts.sum()).numpy()
        added = (1 - shares) * (values[0] - values[1:])
        return added - shares * added.sum()
