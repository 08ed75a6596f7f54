"""Singular values, also of matrices on which LAPACK's fast algorithm fails."""

from typing import NamedTuple

import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor

_LEAST_CORRELATION = 1e-5


class SVD(NamedTuple):
    """`left @ diag(singular) @ right`, singular values descending."""

    left: Float[Tensor, "row rank_or_row"]
    singular: Float[Tensor, " rank"]
    right: Float[Tensor, "rank_or_column column"]


def thin_svd(matrix: Float[Tensor, "row column"]) -> SVD:
    """As many directions as the smaller dimension."""
    return _svd(matrix, complete=False)


def correlations_svd(overlap: Float[Tensor, "row column"]) -> SVD:
    r"""`thin_svd` of a matrix in float64 whose singular values are correlations, in half the time.

    $O^\top O = V \mathrm{diag}(\sigma^2) V^\top$ and $U = O V \mathrm{diag}(1 / \sigma)$. Squares lose the digits of
    small correlations: vectors err by about $\varepsilon / \sigma^2$, which is 2e-6 for the smallest σ computed this
    way. With a smaller one, the ordinary decomposition is used.
    """
    if overlap.shape[0] < overlap.shape[1]:
        turned = correlations_svd(overlap.mT)
        return SVD(turned.right.mT, turned.singular, turned.left.mT)
    squares, vectors = torch.linalg.eigh(overlap.mT @ overlap)
    if len(squares) == 0 or squares[0] < _LEAST_CORRELATION**2:
        return thin_svd(overlap)
    singular, right = squares.flip(0).sqrt(), vectors.flip(1).mT
    return SVD(overlap @ (right.mT / singular), singular, right)


def complete_svd(matrix: Float[Tensor, "row column"]) -> SVD:
    """Complete bases of both sides."""
    return _svd(matrix, complete=True)


def _svd(matrix: Float[Tensor, "row column"], complete: bool) -> SVD:
    """By divide and conquer, or by QR iteration if that does not converge.

    It fails on some matrices with many equal singular values, as canonical correlations are with fewer tokens than
    dimensions: all 1.
    """
    try:
        return SVD(*torch.linalg.svd(matrix, full_matrices=complete))
    except torch.linalg.LinAlgError:
        parts = scipy.linalg.svd(matrix.numpy(), full_matrices=complete, lapack_driver="gesvd")
        return SVD(*(torch.from_numpy(part) for part in parts))
