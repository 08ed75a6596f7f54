"""Canonical correlations of two views: CCA, SVCCA and projection-weighted CCA."""

# x (token, width_x) and y (token, width_y) are centred

from dataclasses import dataclass
from typing import NamedTuple

import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, as_tensor, current_display

from ._views import Matrix, States, as_views, centred, gram

_LEAST_CORRELATION = 1e-5


class SVD(NamedTuple):
    """`left @ diag(singular) @ right`, singular values descending."""

    left: Float[Tensor, "row rank_or_row"]
    singular: Float[Tensor, " rank"]
    right: Float[Tensor, "rank_or_column column"]


def thin_svd(matrix: Float[Tensor, "row column"]) -> SVD:
    """The reduced SVD, with as many directions as the smaller dimension."""
    return svd(matrix, complete=False)


def svd(matrix: Float[Tensor, "row column"], complete: bool = True) -> SVD:
    """SVD by divide and conquer, or by QR iteration if that does not converge.

    Divide and conquer fails on some matrices with many equal singular values. Canonical correlations are such a case
    when there are fewer tokens than dimensions, because all of them are then 1.
    """
    try:
        return SVD(*torch.linalg.svd(matrix, full_matrices=complete))
    except torch.linalg.LinAlgError:
        parts = scipy.linalg.svd(matrix.numpy(), full_matrices=complete, lapack_driver="gesvd")
        return SVD(*(torch.from_numpy(part) for part in parts))


def correlations_svd(overlap: Float[Tensor, "row column"]) -> SVD:
    r"""`thin_svd` of a float64 matrix whose singular values are correlations, in half the time.

    $O^\top O = V \mathrm{diag}(\sigma^2) V^\top$ and $U = O V \mathrm{diag}(1 / \sigma)$. Squaring loses digits of
    small correlations: the singular vectors have an error of about $\varepsilon / \sigma^2$, which is 2e-6 for the
    smallest σ computed in this way. If there is a smaller σ, the ordinary decomposition is used.
    """
    if overlap.shape[0] < overlap.shape[1]:
        turned = correlations_svd(overlap.mT)
        return SVD(turned.right.mT, turned.singular, turned.left.mT)
    squares, vectors = torch.linalg.eigh(overlap.mT @ overlap)
    if len(squares) == 0 or squares[0] < _LEAST_CORRELATION**2:
        return thin_svd(overlap)
    singular, right = squares.flip(0).sqrt(), vectors.flip(1).mT
    return SVD(overlap @ (right.mT / singular), singular, right)


_EIGENVALUE_FLOOR = 1e-12
"""Directions with eigenvalues below this share of the largest are rounding error (float32 states reach about 1e-14)."""
_SAFE_EIGENVALUE = 1e-8
"""A covariance squares the condition number, so QR is used if an eigenvalue is below this share of the largest."""
_SINGULAR_FLOOR_SINGLE, _SINGULAR_FLOOR = 1e-6, 1e-10
_SAFE_PIVOT = 1e-4
"""Cholesky is used if at least this share of each column's variance is not explained by the columns before it."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Whitening:
    """Orthonormal directions of a view, computed from its covariance: `x @ basis` has orthonormal columns."""

    basis: Float[Tensor, "width direction"]
    loadings: Float[Tensor, "direction width"]
    """Inner products of the orthonormal directions with the raw centred columns."""
    safe: bool  # whether the smallest direction is numerically accurate


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Canonical:
    """Canonical correlations in descending order, and how much of each view its canonical variates explain."""

    correlations: Float[Tensor, " variate"]  # as many as the smaller rank of the two views
    weights_x: Float[Tensor, " variate"]
    r"""$\alpha_i = \sum_j |\langle h_i, x_j \rangle|$."""
    weights_y: Float[Tensor, " variate"]
    largest_rank: int


def cca_correlations(x: Matrix, y: Matrix) -> Float[Tensor, " variate"]:
    r"""Canonical correlations of two views, in descending order.

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
    """Canonical correlations of two views, as the user passes them."""
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
    scaled = covariance * shrink.unsqueeze(1) * shrink
    triangle, failed = torch.linalg.cholesky_ex(scaled)
    if not failed and (triangle.diagonal().square() >= _SAFE_PIVOT).all():
        inverse = torch.linalg.solve_triangular(triangle, torch.eye(len(triangle), dtype=triangle.dtype), upper=False)
        return Whitening(basis=shrink.unsqueeze(1) * inverse.mT, loadings=triangle.mT * norms, safe=True)
    values, vectors = torch.linalg.eigh(scaled)
    # Keep only directions in which the view varies; the others would mix with variates of correlation 0.
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
    """Canonical correlations by QR, for views whose covariance is inaccurate; floors are from `singular_floor`."""
    (q_x, loadings_x), (q_y, loadings_y) = orthonormal(x, floor_x), orthonormal(y, floor_y)
    return canonical_of_overlap(q_x.mT @ q_y, loadings_x, loadings_y)


def singular_floor(dtype: torch.dtype) -> float:
    """Share of the largest singular value below which directions are only rounding error in the view's dtype."""
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


def orthonormal(x: States, floor: float) -> tuple[Float[Tensor, "token direction"], Float[Tensor, "direction width"]]:
    """Orthonormal directions of a centred view and their loadings, by QR, then SVD of the small factor."""
    norms = torch.linalg.vector_norm(x, dim=0)
    varying = norms > 0
    q, r = torch.linalg.qr(x[:, varying] / norms[varying])
    left, singular, right = thin_svd(r)
    kept = singular > floor * singular[0]
    loadings = torch.zeros(int(kept.sum()), x.shape[1], dtype=x.dtype)
    loadings[:, varying] = singular[kept, None] * right[kept] * norms[varying]
    return q @ left[:, kept], loadings


def svcca(x: Matrix, y: Matrix, variance: float = 0.99) -> float:
    r"""Mean canonical correlation of the leading principal components of two views.

    $$ \mathrm{SVCCA} = \frac1r \sum_{i=1}^r \rho_i(X V_k, Y W_l) $$

    $V_k$ and $W_l$ are the fewest principal directions that explain `variance` of each view. Invariant to rotation,
    isotropic scaling and translation of either view. With few tokens it is biased like `pwcca`.

    Args:
        x: (token, width_x), float32 or float64; computed in float64.
        y: (token, width_y), the same tokens in the same order.
        variance: Share of variance to keep, in (0, 1].

    Returns:
        Similarity in [0, 1].

    Raises:
        UserError: `variance` outside (0, 1], or views as for `cca_correlations`.

    Source: [@raghu2017].

    >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> round(svcca(x, 2 * x.flip(1) + 1), 6)
    1.0
    """
    if not 0 < variance <= 1:
        raise UserError(f"variance must lie in (0, 1]: the share that the kept directions explain. Got {variance}.")
    view_x, view_y = as_views(x, y)
    return float(cca_correlations(_leading(view_x, variance), _leading(view_y, variance)).mean())


def _leading(x: States, variance: float) -> Float[Tensor, "token component"]:
    left, singular, _ = thin_svd(centred(x))
    explained = singular.square().cumsum(0) / singular.square().sum().clamp(min=torch.finfo(x.dtype).tiny)
    # Rounding in the sum must not add a component when `variance` is 1.
    num = int((explained < variance * (1 - 1e-12)).sum()) + 1
    return left[:, :num] * singular[:num]


SIDES = ("mean", "x", "y")

ROWS_PER_DIMENSION = 10  # with fewer rows per dimension, any two views look similar
LEAST_PER_DIMENSION = 2
"""With at most this many rows per dimension, several correlations of any two views are exactly 1."""


def pwcca(x: Matrix, y: Matrix, side: str = "mean") -> float:
    r"""Similarity of two views: canonical correlations, weighted by how much of one view they explain.

    $$ \mathrm{PWCCA} = \frac{\sum_i \alpha_i \rho_i}{\sum_i \alpha_i}, \qquad
       \alpha_i = \sum_j |\langle h_i, x_j \rangle| $$

    | symbol   | here                                                       | space             |
    |----------|------------------------------------------------------------|-------------------|
    | $\rho_i$ | canonical correlations (`cca_correlations`)                | [0, 1]            |
    | $h_i$    | canonical variates of the weighting view, orthonormal      | $\mathbb R^n$     |
    | $x_j$    | centred raw columns of the weighting view                  | $\mathbb R^n$     |

    Invariant to invertible affine maps of the view that does *not* give the weights. The weights change under linear
    maps, even rotations, of the view that gives them. Exactly 1 for `y = x @ a + b` with an invertible `a`. The
    distance is `1 - pwcca(x, y)`.

    The value is biased upwards for few rows n: for independent views it is about $0.85 \sqrt{d/n}$, and 1 for n ≤ d.
    Compare only values with equal n, use n ≥ 20 d, and compare with the value for shuffled rows. For n ≤ width_x +
    width_y several correlations are 1, and the weights among them depend on the choice of directions.

    Args:
        x: (token, width_x), float32 or float64; computed in float64.
        y: (token, width_y), the same tokens in the same order.
        side: The view that gives the weights, or `"mean"` of both values. [@morcos2018] weight by the narrower view.

    Returns:
        Similarity in [0, 1].

    Raises:
        UserError: Unknown side, views of different length, not finite, or without variation.

    Warns when n < 10 d, with d the larger rank.

    Source: [@morcos2018]; the directions are the exact canonical variates, which the authors' released code does
    not compute.

    >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> round(pwcca(x, x @ torch.tensor([[1.0, 2, 0], [0, 1, 0], [3, 0, 1]])), 6)
    1.0
    """
    check_side(side)
    canonical = canonical_of(x, y)
    warn_few_rows(len(x), canonical.largest_rank)
    return weighted_mean(canonical, side)


def weighted_mean(canonical: Canonical, side: str) -> float:
    """PWCCA from canonical correlations and their weights; 0 if a view is constant."""

    def weigh(weights: Float[Tensor, " variate"]) -> float:
        return float(weights @ canonical.correlations / weights.sum()) if len(weights) else 0.0

    if side == "mean":
        return (weigh(canonical.weights_x) + weigh(canonical.weights_y)) / 2
    return weigh(canonical.weights_x if side == "x" else canonical.weights_y)


def check_side(side: str) -> None:
    if side not in SIDES:
        raise UserError(f'side must be "mean", "x" or "y": the view whose columns give the weights. Got {side}.')


def too_few_rows(num_rows: int, width: int) -> bool:
    """Whether several correlations of any two views of this width are exactly 1, whatever the data."""
    return num_rows <= LEAST_PER_DIMENSION * width


def warn_few_rows(num_rows: int, width: int) -> None:
    """Warn if PWCCA is biased (fewer than ten rows per dimension) or meaningless (`too_few_rows`)."""
    if too_few_rows(num_rows, width):
        current_display().warn(
            f"PWCCA of {num_rows:,} tokens in {width:,} dimensions is biased towards similarity: it is near 1 whatever "
            "the states are, so tables leave it out (NaN). It needs more than "
            f"{LEAST_PER_DIMENSION * width:,} tokens, preferably {2 * ROWS_PER_DIMENSION * width:,}: give a larger "
            "corpus, or raise analysis.sample_bytes if that cut the "
            "sample."
        )
    elif num_rows < ROWS_PER_DIMENSION * width:
        current_display().warn(
            f"PWCCA of {num_rows:,} tokens in {width:,} dimensions is biased towards similarity: it needs at least "
            f"{ROWS_PER_DIMENSION * width:,} tokens, preferably {2 * ROWS_PER_DIMENSION * width:,}. "
            "Use more tokens, and compare only values with equal counts."
        )
