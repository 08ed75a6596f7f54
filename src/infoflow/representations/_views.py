"""Views: matrices of representations, one row per token occurrence."""

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, as_tensor

Matrix = Tensor | np.ndarray
"""A (token, width) matrix in the user's form; functions check it with `as_view`."""


_CONSTANT = 1e-12
"""A column whose centred norm is at most this share of its raw norm is constant up to rounding."""


def as_view(
    x: Matrix, name: str, dtype: torch.dtype | None = torch.float64, least_rows: int = 1
) -> Float[Tensor, "token width"]:
    """`x` as a floating-point tensor on the CPU; `dtype=None` keeps float32 and float64.

    Raises:
        UserError: `x` is not a matrix, has no columns or fewer than `least_rows` rows, or holds NaN or infinity.
    """
    view = as_tensor(x)
    if view.ndim != 2 or len(view) < least_rows or view.shape[1] == 0:
        raise UserError(
            f"{name} must be a matrix of shape (tokens, width) with at least {least_rows} row and one column. "
            f"Got shape {tuple(view.shape)}. Flatten sentences into rows, one per token."
        )
    if dtype is None:
        dtype = view.dtype if view.dtype in (torch.float32, torch.float64) else torch.float32
    view = view.to(dtype)
    # A finite sum has finite terms, and is many times faster; finite terms may still overflow.
    if not bool(view.sum().isfinite() or view.isfinite().all()):
        raise UserError(f"{name} must be finite. It holds NaN or infinity: drop those rows first.")
    return view


def as_views(
    x: Matrix, y: Matrix, dtype: torch.dtype | None = torch.float64
) -> tuple[Float[Tensor, "token width_x"], Float[Tensor, "token width_y"]]:
    """Both views, checked for equal numbers of rows."""
    view_x, view_y = as_view(x, "x", dtype), as_view(y, "y", dtype)
    if len(view_x) != len(view_y):
        raise UserError(
            f"x and y must hold the same tokens in the same order. Got {len(view_x)} and {len(view_y)} rows."
        )
    return view_x, view_y


def centred(x: Float[Tensor, "token width"]) -> Float[Tensor, "token width"]:
    """`x` minus its column means; constant columns, whose mean may round, become exactly 0."""
    mean = x.mean(dim=0)
    shifted = x - mean
    # The raw norm combines the centred norm and the mean's; hypot, since squares of huge states overflow.
    norms = torch.linalg.vector_norm(shifted, dim=0)
    constant = norms <= _CONSTANT * torch.hypot(norms, mean * len(x) ** 0.5)
    return shifted.masked_fill_(constant, 0) if bool(constant.any()) else shifted


def as_labels(labels: Tensor | np.ndarray | list, name: str, length: int | None = None) -> np.ndarray:
    """Labels of any kind, None included, as integers 0..m−1 in order of first appearance.

    Raises:
        UserError: `labels` is not a vector, is empty, or differs in length from `length`.
    """
    vector = np.asarray(as_tensor(labels) if isinstance(labels, Tensor) else labels)
    if vector.ndim != 1 or len(vector) == 0:
        raise UserError(f"{name} must be a vector with at least one label. Got shape {vector.shape}.")
    if length is not None and len(vector) != length:
        raise UserError(f"{name} must hold one label per row. Got {len(vector)} labels for {length} rows.")
    return pd.factorize(vector, use_na_sentinel=False)[0]
