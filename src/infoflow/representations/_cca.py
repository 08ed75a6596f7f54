"""Canonical correlations, by covariances where they are well conditioned and by QR where they are not."""

# x (token, width_x) and y (token, width_y) are centred; leading dimensions of covariances are batches

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError

from ._views import Matrix, as_views, centred

_EIGENVALUE_FLOOR = 1e-12
"""Directions below this share of the largest eigenvalue are rounding, not data (float32 states reach about 1e-14)."""
_SAFE_EIGENVALUE = 1e-8
"""A covariance squares the condition number: below this share its small directions have lost digits, so use QR."""
_SINGULAR_FLOOR = {torch.float32: 1e-6, torch.float64: 1e-10}
_CONSTANT = 1e-12
"""A column whose centred norm is below this share of its raw norm is constant up to rounding."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Whitening:
    """A basis of orthonormal directions of a view, from its covariance.

    `x @ basis` has orthonormal columns, or zero columns where the view has no such direction.
    """

    basis: Float[Tensor, "*batch width direction"]
    loadings: Float[Tensor, "*batch direction width"]
    """Inner products of the orthonormal directions with the raw centred columns."""
    rank: Int[Tensor, "*batch"]
    smallest: Float[Tensor, "*batch"]
    """Smallest eigenvalue kept, as a share of the largest."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Canonical:
    """Canonical correlations in falling order, and how much of each view its canonical variates account for."""

    correlations: Float[Tensor, "*batch variate"]
    weights_x: Float[Tensor, "*batch variate"]
    r"""$\alpha_i = \sum_j |\langle h_i, x_j \rangle|$; 0 beyond the smaller rank."""
    weights_y: Float[Tensor, "*batch variate"]
    rank_x: Int[Tensor, "*batch"]
    rank_y: Int[Tensor, "*batch"]


def cca_correlations(x: Matrix, y: Matrix) -> Float[Tensor, " variate"]:
    r"""Canonical correlations of two views, in falling order.

    $$ \rho_i = \sigma_i(Q_x^\top Q_y), \qquad X - \bar X = Q_x R_x, \quad Y - \bar Y = Q_y R_y $$

    Columns may be constant or linearly dependent; the number of correlations is the smaller rank. With no more rows
    than columns all correlations are 1, whatever the data (see `pwcca`).

    Args:
        x: (token, width_x), float32 or float64; computed in float64.
        y: (token, width_y), the same tokens in the same order.

    Returns:
        Correlations in [0, 1], float64.

    Raises:
        UserError: The views differ in length, are not finite, or one does not vary at all.

    Source: [@hotelling1936].

    >>> x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    >>> cca_correlations(x, 2 * x + 1).round(decimals=6)
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    canonical = canonical_of(x, y)
    return canonical.correlations[: int(torch.minimum(canonical.rank_x, canonical.rank_y))]


def canonical_of(x: Matrix, y: Matrix) -> Canonical:
    """Canonical correlations of two views as a user gives them."""
    floors = [_SINGULAR_FLOOR.get(torch.as_tensor(view).dtype, _SINGULAR_FLOOR[torch.float64]) for view in (x, y)]
    view_x, view_y = as_views(x, y)
    floor_x, floor_y = column_floor(view_x), column_floor(view_y)
    view_x, view_y = centred(view_x), centred(view_y)
    white_x, white_y = whiten(view_x.mT @ view_x, floor_x), whiten(view_y.mT @ view_y, floor_y)
    for name, white in (("x", white_x), ("y", white_y)):
        if white.rank == 0:
            raise UserError(f"{name} must vary over tokens. All its rows are equal, so it correlates with nothing.")
    if min(white_x.smallest, white_y.smallest) >= _SAFE_EIGENVALUE:
        return canonical_of_covariance(white_x, white_y, view_x.mT @ view_y)
    (q_x, loadings_x), (q_y, loadings_y) = (
        _orthonormal(view_x, floor_x, floors[0]),
        _orthonormal(view_y, floor_y, floors[1]),
    )
    rank_x, rank_y = torch.tensor(q_x.shape[1]), torch.tensor(q_y.shape[1])
    return _canonical(q_x.mT @ q_y, loadings_x, loadings_y, rank_x, rank_y)


def column_floor(x: Float[Tensor, "token width"]) -> Float[Tensor, " width"]:
    """Norm below which a centred column of the raw view `x` counts as constant."""
    return _CONSTANT * torch.linalg.vector_norm(x, dim=0)


def whiten(covariance: Float[Tensor, "*batch width width"], floor: Float[Tensor, " width"] | None = None) -> Whitening:
    """The orthonormal directions behind an (unnormalised) covariance.

    Columns are brought to norm 1 first, which keeps layers with a few huge dimensions well conditioned.
    """
    norms = covariance.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    varying = norms > (0 if floor is None else floor)
    shrink = torch.where(varying, 1 / norms.where(varying, 1), 0)
    values, vectors = torch.linalg.eigh(covariance * shrink.unsqueeze(-1) * shrink.unsqueeze(-2))
    largest = values[..., -1:].clamp(min=torch.finfo(values.dtype).tiny)
    kept = values > _EIGENVALUE_FLOOR * largest
    roots = values.where(kept, 1).sqrt() * kept
    inverse_roots = values.where(kept, 1).rsqrt() * kept
    return Whitening(
        basis=shrink.unsqueeze(-1) * vectors * inverse_roots.unsqueeze(-2),
        loadings=roots.unsqueeze(-1) * vectors.mT * norms.unsqueeze(-2),
        rank=kept.sum(-1),
        smallest=(values / largest).where(kept, 1).amin(-1),
    )


def canonical_of_covariance(x: Whitening, y: Whitening, cross: Float[Tensor, "*batch width_x width_y"]) -> Canonical:
    """Canonical correlations from both whitenings and the (unnormalised) cross-covariance."""
    return _canonical(x.basis.mT @ cross @ y.basis, x.loadings, y.loadings, x.rank, y.rank)


def _canonical(
    overlap: Float[Tensor, "*batch direction_x direction_y"],
    loadings_x: Float[Tensor, "*batch direction_x width_x"],
    loadings_y: Float[Tensor, "*batch direction_y width_y"],
    rank_x: Int[Tensor, "*batch"],
    rank_y: Int[Tensor, "*batch"],
) -> Canonical:
    left, correlations, right = torch.linalg.svd(overlap, full_matrices=False)
    # Directions that a rank-deficient view lacks come last, with correlation 0: they are no variates.
    variate = torch.arange(correlations.shape[-1]) < torch.minimum(rank_x, rank_y).unsqueeze(-1)
    return Canonical(
        correlations=correlations.clamp(0, 1) * variate,
        weights_x=(left.mT @ loadings_x).abs().sum(-1) * variate,
        weights_y=(right @ loadings_y).abs().sum(-1) * variate,
        rank_x=rank_x,
        rank_y=rank_y,
    )


def _orthonormal(
    x: Float[Tensor, "token width"], floor: Float[Tensor, " width"], singular_floor: float
) -> tuple[Float[Tensor, "token direction"], Float[Tensor, "direction width"]]:
    """Orthonormal directions of a centred view and their loadings, by QR, then SVD of the small factor."""
    norms = torch.linalg.vector_norm(x, dim=0)
    varying = norms > floor
    q, r = torch.linalg.qr(x[:, varying] / norms[varying])
    left, singular, right = torch.linalg.svd(r, full_matrices=False)
    kept = singular > singular_floor * singular[0]
    loadings = torch.zeros(int(kept.sum()), x.shape[1], dtype=x.dtype)
    loadings[:, varying] = singular[kept, None] * right[kept] * norms[varying]
    return q @ left[:, kept], loadings
