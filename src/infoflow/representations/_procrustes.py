"""Procrustes distances between two views."""

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError

from ._svd import thin_svd
from ._views import Matrix, as_views, centred

_LEAST_EIGENVALUE = 1e-12
"""Directions below this share of the largest do not count, and are not amplified by whitening."""


def procrustes_distance(x: Matrix, y: Matrix, kind: str = "angle", alpha: float = 1.0) -> float:
    r"""Distance between two views after the best rotation.

    $$ \theta = \arccos \frac{\| X_c^\top Y_c \|_*}{\| X_c \|_F \, \| Y_c \|_F}, \qquad
       \rho = \sqrt{\| X_c \|_F^2 + \| Y_c \|_F^2 - 2 \| X_c^\top Y_c \|_*} $$

    $\|\cdot\|_*$ is the nuclear norm, $X_c$ and $Y_c$ have centred columns. Both are metrics: the angle θ on shapes,
    invariant to rotation, reflection, isotropic scaling and translation; the distance ρ on sizes and shapes, in the
    units of the states, where scale counts. Views of different width compare as if zero-padded.

    With `alpha` below 1 each view is partly whitened first, at unchanged total variance:
    $X_c (\alpha I + (1 - \alpha)(X_c^\top X_c)^{-1/2})$. At 0 the angle is that of canonical correlation, invariant
    to every invertible affine map; in between, scale counts.

    Args:
        x: (token, width_x), float32 or float64; computed in float64.
        y: (token, width_y), the same tokens in the same order.
        kind: `"angle"`, in radians, or `"size-and-shape"`.
        alpha: From 1, no whitening, to 0, full whitening.

    Returns:
        Distance: the angle in [0, π/2], the other at least 0.

    Raises:
        UserError: Unknown kind, `alpha` outside [0, 1], views of different length or not finite; for the angle and
            for whitening, a view without variation.

    Source: [@williams2021].

    >>> x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    >>> round(procrustes_distance(x, 3 * x.flip(1) + 1), 6)
    0.0
    >>> round(procrustes_distance(x, 3 * x.flip(1) + 1, kind="size-and-shape"), 2)
    27.15
    """
    if kind not in ("angle", "size-and-shape"):
        raise UserError(f'kind must be "angle" or "size-and-shape". Got {kind}.')
    if not 0 <= alpha <= 1:
        raise UserError(f"alpha must lie in [0, 1]: 1 rotates only, 0 whitens fully. Got {alpha}.")
    view_x, view_y = (centred(view) for view in as_views(x, y))
    if kind == "angle" or alpha < 1:
        _check_varies(view_x, view_y)
    if alpha < 1:
        view_x, view_y = _partly_whitened(view_x, alpha), _partly_whitened(view_y, alpha)
    norm_x, norm_y = torch.linalg.matrix_norm(view_x), torch.linalg.matrix_norm(view_y)
    if kind == "size-and-shape":
        # Views are divided by the larger norm, so that huge states do not overflow and equal ones cancel.
        scale = float(torch.maximum(norm_x, norm_y)) or 1.0
        squares = float((norm_x / scale).square() + (norm_y / scale).square())
        return scale * max(squares - 2 * _nuclear_norm(view_x / scale, view_y / scale), 0.0) ** 0.5
    cosine = _nuclear_norm(view_x / norm_x, view_y / norm_y)
    # Rounding may leave a cosine above 1, where arccos is NaN. Below 1 its slope is infinite: 1e-16 reads as 1e-8.
    return float(torch.arccos(torch.tensor(min(cosine, 1.0), dtype=torch.float64)))


def _nuclear_norm(x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]) -> float:
    return float(thin_svd(x.mT @ y).singular.sum())


def _check_varies(x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]) -> None:
    for name, view in (("x", x), ("y", y)):
        if not view.any():
            raise UserError(f"{name} must vary over tokens. All its rows are equal, so it has no shape.")


def _partly_whitened(x: Float[Tensor, "token width"], alpha: float) -> Float[Tensor, "token width"]:
    values, vectors = torch.linalg.eigh(x.mT @ x)
    kept = values > _LEAST_EIGENVALUE * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    factors = alpha + (1 - alpha) * values.rsqrt()
    factors *= (values.sum() / (factors.square() * values).sum()).sqrt()
    return x @ (vectors * factors) @ vectors.mT
