"""Canonical correlations, from covariances if they are well conditioned, otherwise by QR."""

# x (token, width_x) and y (token, width_y) are centred

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, as_tensor

from ._svd import correlations_svd, thin_svd
from ._token_products import gram
from ._views import Matrix, as_views, centred

_EIGENVALUE_FLOOR = 1e-12
"""Directions below this share of the largest eigenvalue are rounding, not data (float32 states reach about 1e-14)."""
_SAFE_EIGENVALUE = 1e-8
"""A covariance squares the condition number: below this share its small directions have lost digits, so use QR."""
_SINGULAR_FLOOR_SINGLE, _SINGULAR_FLOOR = 1e-6, 1e-10


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Whitening:
    """A basis of orthonormal directions of a view, from its covariance: `x @ basis` has orthonormal columns."""

    basis: Float[Tensor, "width direction"]
    loadings: Float[Tensor, "direction width"]
    """Inner products of the orthonormal directions with the raw centred columns."""
    safe: bool
    """Whether the smallest direction is numerically accurate."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Canonical:
    """Canonical correlations in falling order, and how much of each view its canonical variates explain."""

    correlations: Float[Tensor, " variate"]
    """As many as the smaller rank."""
    weights_x: Float[Tensor, " variate"]
    r"""$\alpha_i = \sum_j |\langle h_i, x_j \rangle|$."""
    weights_y: Float[Tensor, " variate"]
    largest_rank: int


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
    return canonical_of(x, y).correlations


def canonical_of(x: Matrix, y: Matrix) -> Canonical:
    """Canonical correlations of two views in the user's form."""
    raw_x, raw_y = as_tensor(x), as_tensor(y)
    view_x, view_y = (centred(view) for view in as_views(raw_x, raw_y))
    white_x, white_y = whiten(gram(view_x)), whiten(gram(view_y))
    for name, white in (("x", white_x), ("y", white_y)):
        if len(white.loadings) == 0:
            raise UserError(f"{name} must vary over tokens. All its rows are equal, so it correlates with nothing.")
    if white_x.safe and white_y.safe:
        return canonical_of_covariance(white_x, white_y, view_x.mT @ view_y)
    return canonical_by_qr(view_x, view_y, singular_floor(raw_x.dtype), singular_floor(raw_y.dtype))


def whiten(covariance: Float[Tensor, "width width"], floor: Float[Tensor, " width"] | None = None) -> Whitening:
    """The orthonormal directions of an (unnormalised) covariance.

    Columns are scaled to norm 1 first, which keeps layers with a few huge dimensions well conditioned; columns of norm
    up to `floor` count as constant.
    """
    norms = covariance.diagonal().clamp(min=0).sqrt()
    varying = norms > (0 if floor is None else floor)
    shrink = torch.where(varying, 1 / norms.where(varying, 1), 0)
    values, vectors = torch.linalg.eigh(covariance * shrink.unsqueeze(1) * shrink)
    # Only directions that the view has: others would mix with variates of correlation 0.
    kept = values > _EIGENVALUE_FLOOR * values[-1].clamp(min=torch.finfo(values.dtype).tiny)
    values, vectors = values[kept], vectors[:, kept]
    return Whitening(
        basis=shrink.unsqueeze(1) * vectors * values.rsqrt(),
        loadings=values.sqrt().unsqueeze(1) * vectors.mT * norms,
        safe=bool((values >= _SAFE_EIGENVALUE * values[-1:]).all()),
    )


def canonical_of_covariance(x: Whitening, y: Whitening, cross: Float[Tensor, "width_x width_y"]) -> Canonical:
    """Canonical correlations from both whitenings and the (unnormalised) cross-covariance."""
    return canonical_of_overlap(x.basis.mT @ cross @ y.basis, x.loadings, y.loadings)


def canonical_by_qr(
    x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"], floor_x: float, floor_y: float
) -> Canonical:
    """Canonical correlations of views whose covariance is inaccurate; floors are from `singular_floor`."""
    (q_x, loadings_x), (q_y, loadings_y) = orthonormal(x, floor_x), orthonormal(y, floor_y)
    return canonical_of_overlap(q_x.mT @ q_y, loadings_x, loadings_y)


def singular_floor(dtype: torch.dtype) -> float:
    """Directions below this share of the largest singular value are rounding of the view's original type."""
    return _SINGULAR_FLOOR_SINGLE if dtype == torch.float32 else _SINGULAR_FLOOR


def canonical_of_overlap(
    overlap: Float[Tensor, "direction_x direction_y"],
    loadings_x: Float[Tensor, "direction_x width_x"],
    loadings_y: Float[Tensor, "direction_y width_y"],
) -> Canonical:
    """Canonical correlations from the inner products of orthonormal directions and the loadings of both views."""
    left, correlations, right = correlations_svd(overlap)
    return Canonical(
        correlations=correlations.clamp(0, 1),
        weights_x=(left.mT @ loadings_x).abs().sum(1),
        weights_y=(right @ loadings_y).abs().sum(1),
        largest_rank=max(overlap.shape),
    )


def orthonormal(
    x: Float[Tensor, "token width"], floor: float
) -> tuple[Float[Tensor, "token direction"], Float[Tensor, "direction width"]]:
    """Orthonormal directions of a centred view and their loadings, by QR, then SVD of the small factor."""
    norms = torch.linalg.vector_norm(x, dim=0)
    varying = norms > 0
    q, r = torch.linalg.qr(x[:, varying] / norms[varying])
    left, singular, right = thin_svd(r)
    kept = singular > floor * singular[0]
    loadings = torch.zeros(int(kept.sum()), x.shape[1], dtype=x.dtype)
    loadings[:, varying] = singular[kept, None] * right[kept] * norms[varying]
    return q @ left[:, kept], loadings
