"""Procrustes distance between two views."""

import torch

from infoflow.foundation import UserError

from ._svd import thin_svd
from ._views import Matrix, as_views, centred


def procrustes_distance(x: Matrix, y: Matrix) -> float:
    r"""Angle between two views after the best rotation, in radians.

    $$ \theta = \arccos \frac{\| X_c^\top Y_c \|_*}{\| X_c \|_F \, \| Y_c \|_F} $$

    $\|\cdot\|_*$ is the nuclear norm, $X_c$ and $Y_c$ have centred columns. A metric on shapes: invariant to rotation,
    reflection, isotropic scaling and translation. Views of different width compare as if zero-padded.

    Args:
        x: (token, width_x), float32 or float64; computed in float64.
        y: (token, width_y), the same tokens in the same order.

    Returns:
        Distance in [0, π/2].

    Raises:
        UserError: Views of different length, not finite, or without variation.

    Source: [@williams2021].

    >>> x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    >>> round(procrustes_distance(x, 3 * x.flip(1) + 1), 6)
    0.0
    """
    view_x, view_y = (centred(view) for view in as_views(x, y))
    norm_x, norm_y = torch.linalg.matrix_norm(view_x), torch.linalg.matrix_norm(view_y)
    for name, norm in (("x", norm_x), ("y", norm_y)):
        if norm == 0:
            raise UserError(f"{name} must vary over tokens. All its rows are equal, so it has no shape.")
    cosine = float(thin_svd((view_x / norm_x).mT @ (view_y / norm_y)).singular.sum())
    # Rounding may leave a cosine above 1, where arccos is NaN. Below 1 its slope is infinite: 1e-16 reads as 1e-8.
    return float(torch.arccos(torch.tensor(min(cosine, 1.0), dtype=torch.float64)))
