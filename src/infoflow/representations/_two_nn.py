"""Intrinsic dimension from two nearest neighbours."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError, current_display

from ._distinct_points import distinct_points
from ._nearest import nearest
from ._views import Matrix, as_view

ROUNDING = 1e-6
"""Mean ln μ at which the two distances differ by no more than the rounding of float32."""


def two_nn_dimension(x: Matrix, method: str = "mle", discard: float = 0.1) -> float:
    r"""Intrinsic dimension of a point cloud, from the ratio of its two nearest distances.

    $$ \mu_i = r_2 / r_1, \qquad \hat d = N / \sum_i \ln \mu_i $$

    With `method="linear"`, $\hat d$ is instead the slope through the origin of $-\ln(1 - F(\mu))$ on $\ln \mu$, without
    the largest `discard` of the ratios (more robust to outliers). Repeated points are dropped first, with a note.

    Args:
        x: (token, width), float32 or float64; computed in float64.
        method: Maximum likelihood or the linear fit of [@facco2017].
        discard: Share of the largest ratios that the linear fit leaves out.

    Returns:
        Dimension, a positive number; NaN with a warning where the two distances are equal (points of a lattice).

    Raises:
        UserError: Fewer than 3 distinct points, or an unknown method.

    Source: [@facco2017].
    """
    if method not in ("mle", "linear") or not 0 <= discard < 1:
        raise UserError(f'method must be "mle" or "linear" and discard lie in [0, 1). Got {method} and {discard}.')
    view = as_view(x, "x")
    points = view[distinct_points(view)]
    if len(points) < len(view):
        current_display().note(f"Intrinsic dimension: {len(view) - len(points)} repeated points left out.")
    if len(points) < 3:
        raise UserError(f"The intrinsic dimension needs at least 3 distinct points. Got {len(points)}.")
    ratios = two_neighbours(points).log_ratios.sort().values
    kept = ratios if method == "mle" else ratios[: max(1, int(len(ratios) * (1 - discard)))]
    if kept.mean() <= ROUNDING:
        current_display().warn("The intrinsic dimension is undefined: two nearest neighbours are equally far.")
        return math.nan
    if method == "mle":
        return float(len(ratios) / ratios.sum())
    share = torch.arange(1, len(kept) + 1, dtype=kept.dtype) / len(ratios)
    # With discard=0 the largest ratio has F = 1, whose logarithm is infinite.
    kept, share = kept[share < 1], share[share < 1]
    return float((kept @ -torch.log1p(-share)) / kept.square().sum())


class TwoNeighbours(NamedTuple):
    """The two nearest other points of every point."""

    log_ratios: Float[Tensor, " point"]
    """ln(r2 / r1)"""
    indices: Int[Tensor, "point two"]


def two_neighbours(points: Float[Tensor, "point width"]) -> TwoNeighbours:
    """Distances are recomputed from differences, which is exact for close points."""
    parts, indices = [], []
    for found in nearest(points, 2, "euclidean", torch.arange(len(points))):
        differences = points[found.indices] - points[found.queries, None]
        parts.append(torch.linalg.vector_norm(differences, dim=2).sort(dim=1).values)
        indices.append(found.indices)
    distances = torch.cat(parts)
    return TwoNeighbours(torch.log(distances[:, 1] / distances[:, 0]), torch.cat(indices))
