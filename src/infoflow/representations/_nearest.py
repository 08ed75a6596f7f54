"""Nearest neighbours by blocked matrix products, so that memory stays bounded."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError

METRICS = ("cosine", "euclidean")

_SCORES_AT_ONCE = 2**23  # 32 MB in float32


class Neighbours(NamedTuple):
    """Neighbours of some queries, nearest first; the query itself is not among them."""

    queries: Int[Tensor, " query"]
    indices: Int[Tensor, "query neighbour"]


def nearest(
    x: Float[Tensor, "token width"], k: int, metric: str, queries: Int[Tensor, " query"]
) -> Iterator[Neighbours]:
    """The k nearest rows to each query row, block by block.

    A zero vector has cosine 0 with every row.
    """
    base, offset = scored(x, metric)
    step = max(1, _SCORES_AT_ONCE // len(x))
    for start in range(0, len(queries), step):
        chosen = queries[start : start + step]
        scores = torch.addmm(offset, base[chosen], base.mT) if offset is not None else base[chosen] @ base.mT
        scores[torch.arange(len(chosen)), chosen] = -torch.inf
        yield Neighbours(chosen, scores.topk(k, dim=1).indices)


def check_metric(metric: str) -> None:
    if metric not in METRICS:
        raise UserError(f'metric must be "cosine" or "euclidean". Got {metric!r}.')


def scored(
    x: Float[Tensor, "token width"], metric: str
) -> tuple[Float[Tensor, "token width"], Float[Tensor, " token"] | None]:
    """Rows (and an offset) whose inner products rank neighbours as the metric does.

    A zero vector has cosine 0 with every row.
    """
    if metric == "cosine":
        return torch.nn.functional.normalize(x, dim=1), None
    # Centring changes no distance, and keeps |x|² small where products would cancel.
    shifted = x - x.mean(0)
    return shifted, -shifted.square().sum(1) / 2
