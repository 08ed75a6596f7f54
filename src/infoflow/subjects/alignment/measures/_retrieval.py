"""Word retrieval: does a vector find its counterpart among all others?"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError

from ._csls import NEIGHBOURS, mean_nearest, row_blocks, unit_rows

_TIE = 1e-9
"""Scores of equal vectors differ by less than this through rounding, and must count as ties."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrieval:
    """Share of words that find their counterpart, in each direction."""

    forward: float  # x finds y
    backward: float  # y finds x


def retrieval_accuracy(x: Tensor | np.ndarray, y: Tensor | np.ndarray, neighbours: int = NEIGHBOURS) -> Retrieval:
    """Share of rows whose best match by `csls` is the row with the same index, x to y and y to x.

    Ties (equal vectors, or a space that has collapsed to a point) count in expectation of a random choice: a row that
    ties with m − 1 others counts 1/m. Chance is one over the number of rows. Similarities are computed in blocks, so
    that memory grows with the number of rows, not with its square.

    Args:
        x: (word, width), float32 or float64.
        y: (word, width), row i the counterpart of row i of x.
        neighbours: Number of rows that the correction of `csls` averages over.

    Raises:
        UserError: As in `csls`; or the numbers of rows differ.

    Source: [@conneau2018].

    >>> retrieval_accuracy(torch.eye(4), 3 * torch.eye(4), neighbours=2)
    Retrieval(forward=1.0, backward=1.0)
    """
    forward, backward = retrieval_hits(x, y, neighbours)
    return Retrieval(forward=float(forward.mean()), backward=float(backward.mean()))


def retrieval_hits(
    x: Tensor | np.ndarray, y: Tensor | np.ndarray, neighbours: int = NEIGHBOURS
) -> tuple[Float[Tensor, " word"], Float[Tensor, " word"]]:
    """The probability that each row finds its counterpart, x to y and y to x (see `retrieval_accuracy`)."""
    units_x, units_y = unit_rows(x, y, neighbours)
    if len(units_x) != len(units_y):
        raise UserError(
            "Row i of x and of y must be counterparts, so both need as many rows. "
            f"Got {len(units_x)} and {len(units_y)}."
        )
    near_x, near_y = mean_nearest(units_x, units_y, neighbours), mean_nearest(units_y, units_x, neighbours)
    return _hits(units_x, units_y, near_y), _hits(units_y, units_x, near_x)


def _hits(
    queries: Float[Tensor, "word width"], keys: Float[Tensor, "word width"], near: Float[Tensor, " word"]
) -> Float[Tensor, " word"]:
    """For each query the chance of its own key; r of the query is left out, since it shifts all its scores equally."""
    hits, start = [], 0
    for part in row_blocks(queries, keys):
        scores = 2 * (part @ keys.mT) - near
        own = scores[torch.arange(len(part)), start + torch.arange(len(part))]
        best = scores >= scores.max(dim=1, keepdim=True).values - _TIE
        found = own >= scores.max(dim=1).values - _TIE
        hits.append(found.to(torch.float64) / best.sum(dim=1))
        start += len(part)
    return torch.cat(hits)
