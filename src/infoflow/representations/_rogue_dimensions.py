"""The share of the average similarity due to a few dimensions."""

# n occurrence, D width, 64 bootstrap blocks

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS

from ._block_similarity import Jackknifed

NUM_ROGUE = 3


def rogue_share(units: Float[Tensor, "occurrence width"], blocks: Int[Tensor, " occurrence"]) -> Jackknifed:
    r"""The share of the expected cosine contributed by its three strongest dimensions.

    $$ \cos(x, y) = \sum_d u_d v_d, \qquad
       c_d = \frac{(\sum_i u_{id})^2 - \sum_i u_{id}^2}{n(n-1)}, \qquad
       \frac{c_{(1)} + c_{(2)} + c_{(3)}}{\sum_d c_d} $$

    Above 1 if other dimensions lower the cosine.

    Source: [@timkey2021].
    """
    sums, squares = (
        torch.zeros(NUM_BLOCKS, units.shape[1], dtype=units.dtype).index_add_(0, blocks, x)
        for x in (units, units.square())
    )
    total, energy = sums.sum(0), squares.sum(0)
    return Jackknifed(
        value=float(_share(total, energy)),
        without_block=_share(total - sums, energy - squares).numpy(),
    )


def _share(total: Float[Tensor, "*set width"], energy: Float[Tensor, "*set width"]) -> Float[Tensor, "*set"]:
    parts = total.square() - energy
    return parts.topk(min(NUM_ROGUE, parts.shape[-1])).values.sum(-1) / parts.sum(-1)
