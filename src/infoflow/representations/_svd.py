"""Singular values of matrices that LAPACK's fast algorithm gives up on."""

from typing import NamedTuple

import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor


class SVD(NamedTuple):
    """`left @ diag(singular) @ right`, singular values descending."""

    left: Float[Tensor, "row rank_or_row"]
    singular: Float[Tensor, " rank"]
    right: Float[Tensor, "rank_or_column column"]


def thin_svd(matrix: Float[Tensor, "row column"]) -> SVD:
    """As many directions as the smaller side has."""
    return _svd(matrix, complete=False)


def complete_svd(matrix: Float[Tensor, "row column"]) -> SVD:
    """Complete bases of both sides."""
    return _svd(matrix, complete=True)


def _svd(matrix: Float[Tensor, "row column"], complete: bool) -> SVD:
    """By divide and conquer, and by QR iteration where that does not converge.

    It does not on some matrices with many equal singular values, which is what canonical correlations are when there
    are fewer tokens than dimensions: all 1.
    """
    try:
        return SVD(*torch.linalg.svd(matrix, full_matrices=complete))
    except torch.linalg.LinAlgError:
        parts = scipy.linalg.svd(matrix.numpy(), full_matrices=complete, lapack_driver="gesvd")
        return SVD(*(torch.from_numpy(part) for part in parts))
