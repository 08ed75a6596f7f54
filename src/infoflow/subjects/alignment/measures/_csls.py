"""Cross-domain similarity local scaling: a cosine corrected for hubs."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, as_tensor

NEIGHBOURS = 10
"""Default of the published measure."""

_SCORES_AT_ONCE = 1 << 24
"""Entries of the similarity matrix held at a time when only statistics are needed: 128 MB in float64."""


def csls(x: Tensor | np.ndarray, y: Tensor | np.ndarray, neighbours: int = NEIGHBOURS) -> Float[Tensor, "x y"]:
    r"""How well each row of x matches each row of y, corrected for rows that are close to everything.

    $$ \mathrm{CSLS}(x_i, y_j) = 2 \cos(x_i, y_j) - r(x_i) - r(y_j) $$

    | symbol     | here                                                          | space          |
    |------------|---------------------------------------------------------------|----------------|
    | $r(x_i)$   | mean cosine of $x_i$ to its `neighbours` nearest rows of y    | [−1, 1]        |
    | $r(y_j)$   | mean cosine of $y_j$ to its `neighbours` nearest rows of x    | [−1, 1]        |
    | returned   | one score per pair; a row's best match is its largest one     | [−4, 4]        |

    Each *row* is divided by its own norm. (A published script divides by the norm of the whole matrix, which leaves dot
    products that favour long vectors.)

    Args:
        x: (x, width), float32 or float64; computed in float64.
        y: (y, width), vectors of the same space.
        neighbours: Number of rows that r averages over.

    Raises:
        UserError: Widths differ, a vector is zero or not finite, or there are fewer rows than `neighbours`.

    Source: [@conneau2018].

    >>> csls(torch.eye(3), torch.eye(3), neighbours=1)
    tensor([[ 0., -2., -2.],
            [-2.,  0., -2.],
            [-2., -2.,  0.]], dtype=torch.float64)
    """
    units_x, units_y = unit_rows(x, y, neighbours)
    near_x, near_y = mean_nearest(units_x, units_y, neighbours), mean_nearest(units_y, units_x, neighbours)
    return 2 * (units_x @ units_y.mT) - near_x[:, None] - near_y


def unit_rows(
    x: Tensor | np.ndarray, y: Tensor | np.ndarray, neighbours: int
) -> tuple[Float[Tensor, "x width"], Float[Tensor, "y width"]]:
    """Both matrices with rows of norm 1, in float64, checked."""
    views = [_unit_rows(matrix, name) for matrix, name in ((x, "x"), (y, "y"))]
    widths, lengths = [view.shape[1] for view in views], [len(view) for view in views]
    if widths[0] != widths[1]:
        raise UserError(
            f"x and y must be vectors of one space. Got widths {widths[0]} and {widths[1]}: map one onto the other "
            "first (least_squares_map)."
        )
    if not 1 <= neighbours <= min(lengths):
        raise UserError(f"neighbours must lie in 1..{min(lengths)}, the smaller number of rows. Got {neighbours}.")
    return views[0], views[1]


def mean_nearest(
    units: Float[Tensor, "row width"], others: Float[Tensor, "other width"], neighbours: int
) -> Float[Tensor, " row"]:
    """r: the mean cosine of each row to its nearest rows of `others`, without the whole similarity matrix."""
    return torch.cat([(part @ others.mT).topk(neighbours).values.mean(dim=1) for part in row_blocks(units, others)])


def row_blocks(
    units: Float[Tensor, "row width"], others: Float[Tensor, "other width"]
) -> Iterator[Float[Tensor, "part width"]]:
    """Blocks of rows whose similarities with all of `others` fit in memory."""
    yield from units.split(max(1, _SCORES_AT_ONCE // len(others)))


def _unit_rows(matrix: Tensor | np.ndarray, name: str) -> Float[Tensor, "row width"]:
    view = as_tensor(matrix)
    if view.ndim != 2 or 0 in view.shape:
        raise UserError(f"{name} must be a matrix of shape (words, width). Got shape {tuple(view.shape)}.")
    view = view.to(torch.float64)
    norms = torch.linalg.vector_norm(view, dim=1, keepdim=True)
    if not bool(norms.isfinite().all()):
        raise UserError(f"{name} must be finite. It holds NaN or infinity: drop those rows first.")
    if bool((norms == 0).any()):
        raise UserError(f"{int((norms == 0).sum())} rows of {name} are zero and have no direction. Drop them first.")
    return view / norms
