"""Singular values of matrices that LAPACK's fast algorithm gives up on."""

from typing import NamedTuple

import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor


class ThinSVD(NamedTuple):
    """`left @ diag(singular) @ right`, singular values descending."""

    left: Float[Tensor, "row rank"]
    singular: Float[Tensor, " rank"]
    right: Float[Tensor, "rank column"]


def thin_svd(matrix: Float[Tensor, "row column"]) -> ThinSVD:
    """By divide and conquer, and by QR iteration where that does not converge.

    It does not on some matrices with many equal singular values, which is what canonical correlations are when there
    are fewer tokens than dimensions: all 1.
    """
    try:
        return ThinSVD(*torch.linalg.svd(matrix, full_matrices=False))
    except torch.linalg.LinAlgError:
        parts = scipy.linalg.svd(matrix.numpy(), full_matrices=False, lapack_driver="gesvd")
        return ThinSVD(*(torch.from_numpy(part) for part in parts))
