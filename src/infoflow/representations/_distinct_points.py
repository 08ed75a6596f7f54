"""Distinct points."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.foundation import stream


def distinct_points(x: Float[Tensor, "point width"], tolerance: float = 0.0) -> Int[Tensor, " distinct"]:
    """The indices, in order, of the rows that do not repeat an earlier row.

    With a tolerance, a row repeats another at a distance of at most this share of the rows' root mean square length:
    equal inputs give slightly different outputs if batches are padded differently.
    """
    kept = _first_of_equals(x)
    reach = tolerance * float(x.square().sum(1).mean().sqrt())
    if reach == 0 or len(kept) < 2:
        return kept
    repeated = torch.zeros(len(x), dtype=torch.bool)
    for group in _close_in_one_direction(x[kept], reach):
        repeated[kept[group]] = _repeats(x[kept[group]], reach)
    return kept[~repeated[kept]]


def _first_of_equals(x: Float[Tensor, "point width"]) -> Int[Tensor, " distinct"]:
    values, names = torch.unique(x, dim=0, return_inverse=True)
    firsts = torch.full((len(values),), len(x)).scatter_reduce_(0, names, torch.arange(len(x)), "amin")
    return firsts.sort().values


def _close_in_one_direction(x: Float[Tensor, "point width"], reach: float) -> list[Int[Tensor, " close"]]:
    """Groups of more than one row that contain all pairs within reach: these are close in any direction."""
    direction = torch.from_numpy(stream("distinct-points").standard_normal(x.shape[1])).to(x.dtype)
    places, order = (x @ (direction / direction.norm())).sort()
    ends = (places.diff() > reach).nonzero()[:, 0] + 1
    return [group.sort().values for group in order.tensor_split(ends) if len(group) > 1]


def _repeats(x: Float[Tensor, "close width"], reach: float) -> Bool[Tensor, " close"]:
    """Whether each row is within reach of an earlier row that is not itself a repetition."""
    repeats = torch.zeros(len(x), dtype=torch.bool)
    for index in range(len(x) - 1):
        if not repeats[index]:
            repeats[index + 1 :] |= torch.linalg.vector_norm(x[index + 1 :] - x[index], dim=1) <= reach
    return repeats
