"""Views: matrices of representations, one row per token occurrence."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError

Matrix = Tensor | np.ndarray
"""A (token, width) matrix as a user gives it; functions check it with `as_view`."""


def as_view(x: Matrix, name: str, dtype: torch.dtype | None = torch.float64) -> Float[Tensor, "token width"]:
    """`x` as a floating-point tensor; `dtype=None` keeps float32 and float64.

    Raises:
        UserError: `x` is not a matrix, has no rows or columns, or holds NaN or infinity.
    """
    view = torch.as_tensor(x)
    if view.ndim != 2 or 0 in view.shape:
        raise UserError(
            f"{name} must be a matrix of shape (tokens, width) with at least one row and column. "
            f"Got shape {tuple(view.shape)}. Flatten sentences into rows, one per token."
        )
    if dtype is None:
        dtype = view.dtype if view.dtype in (torch.float32, torch.float64) else torch.float32
    view = view.detach().to(dtype)
    if not bool(torch.isfinite(view).all()):
        raise UserError(f"{name} must be finite. It holds NaN or infinity: drop those rows first.")
    return view


def as_views(
    x: Matrix, y: Matrix, dtype: torch.dtype | None = torch.float64
) -> tuple[Float[Tensor, "token width_x"], Float[Tensor, "token width_y"]]:
    """Both views, checked to hold the same number of rows."""
    view_x, view_y = as_view(x, "x", dtype), as_view(y, "y", dtype)
    if len(view_x) != len(view_y):
        raise UserError(
            f"x and y must hold the same tokens in the same order. Got {len(view_x)} and {len(view_y)} rows."
        )
    return view_x, view_y


def centred(x: Float[Tensor, "token width"]) -> Float[Tensor, "token width"]:
    return x - x.mean(dim=0)


def as_labels(labels: Tensor | np.ndarray | list, name: str, length: int | None = None) -> np.ndarray:
    """Labels of any kind as integers 0..m−1 (the rank of each distinct label).

    Raises:
        UserError: `labels` is not a vector, is empty, or has another length than `length`.
    """
    vector = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if vector.ndim != 1 or len(vector) == 0:
        raise UserError(f"{name} must be a vector with at least one label. Got shape {vector.shape}.")
    if length is not None and len(vector) != length:
        raise UserError(f"{name} must hold one label per row. Got {len(vector)} labels for {length} rows.")
    return np.unique(vector, return_inverse=True)[1]
