"""Nearest neighbours within one pool and within subsets of it, found by one search."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ._nearest import scored

_SCORES_AT_ONCE = 2**22  # 16 MB in float32
_SPARE = 2
"""Neighbours searched per neighbour wanted: a subset of half the pool mostly finds its own among them."""


def nearest_in_subsets(
    x: Float[Tensor, "token width"], k: int, metric: str, subsets: Sequence[Bool[Tensor, " token"]]
) -> list[Int[Tensor, "query neighbour"]]:
    """For every row of a subset the k nearest of its other rows (fewer if it has fewer), nearest first.

    Queries are in the order of the rows; neighbours are row indices of `x`.
    """
    base, offset = scored(x, metric)
    looked_up = min(len(x) - 1, _SPARE * k)
    sizes = [int(subset.sum()) for subset in subsets]
    parts: list[list[Tensor]] = [[] for _ in subsets]
    step = max(1, _SCORES_AT_ONCE // len(x))
    for start in range(0, len(x), step):
        rows = torch.arange(start, min(start + step, len(x)))
        scores = torch.addmm(offset, base[rows], base.mT) if offset is not None else base[rows] @ base.mT
        scores[torch.arange(len(rows)), rows] = -torch.inf
        order = _descending(scores, looked_up)
        for subset, size, found in zip(subsets, sizes, parts, strict=True):
            asked = subset[rows]
            found.append(_in_subset(order[asked], scores, asked, subset, min(k, size - 1)))
    return [torch.cat(found) for found in parts]


def _descending(scores: Float[Tensor, "query token"], num: int) -> Int[Tensor, "query neighbour"]:
    """Columns of the `num` highest scores, highest first.

    On rows of 500 to 1,000 scores NumPy's partition takes 7 to 12 ns per score, `topk` 21 to 30 (measured).
    """
    size = scores.shape[1]
    indices = torch.from_numpy(np.argpartition(scores.numpy(), size - num, axis=1)[:, size - num :].copy())
    return indices.gather(1, scores.gather(1, indices).argsort(dim=1, descending=True))


def _in_subset(
    order: Int[Tensor, "query neighbour"],
    scores: Float[Tensor, "row token"],
    asked: Bool[Tensor, " row"],
    subset: Bool[Tensor, " token"],
    num: int,
) -> Int[Tensor, "query chosen"]:
    """The first `num` of each row's neighbours that lie in the subset; looked up anew where too few were found."""
    inside = subset[order]
    if bool(inside[:, :num].all()):
        return order[:, :num]
    rank = inside.cumsum(1)
    enough = rank[:, -1] >= num
    chosen = torch.empty(len(order), num, dtype=order.dtype)
    chosen[enough] = order[enough][inside[enough] & (rank[enough] <= num)].view(-1, num)
    if not bool(enough.all()):
        again = scores[asked.nonzero().squeeze(1)[~enough]].masked_fill(~subset, -torch.inf)
        chosen[~enough] = again.topk(num, dim=1).indices
    return chosen
