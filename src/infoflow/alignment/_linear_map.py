"""Closed-form maps from one space onto another: the alignment that leaves the encoder as it is."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.foundation import UserError, as_tensor


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LinearMap:
    """y ≈ x W + b."""

    weight: Float[Tensor, "width_x width_y"]
    bias: Float[Tensor, " width_y"]

    def __call__(self, x: Float[Tensor, "word width_x"]) -> Float[Tensor, "word width_y"]:
        return x.to(self.weight) @ self.weight + self.bias

    def module(self) -> nn.Linear:
        """The same map as a layer, in float32."""
        layer = nn.Linear(*self.weight.shape)
        with torch.no_grad():
            layer.weight.copy_(self.weight.mT)
            layer.bias.copy_(self.bias)
        return layer


def least_squares_map(x: Tensor | np.ndarray, y: Tensor | np.ndarray) -> LinearMap:
    r"""The affine map with the smallest squared error; of several the one with the smallest weights.

    $$ W, b = \arg\min \| X W + 1 b^\top - Y \|_F^2 $$

    What the explicit alignment reaches when only its projection is trained, to the end and without regulariser.

    Args:
        x: (word, width_x), float32 or float64; computed in float64.
        y: (word, width_y), row i the counterpart of row i of x.

    Raises:
        UserError: Not matrices of as many rows, or not finite.

    Source: [@mikolov2013] (there without b).

    >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> fitted = least_squares_map(x, x @ torch.tensor([[1.0], [2.0], [0.0]]) + 5)
    >>> [round(float(value), 6) for value in (*fitted.weight[:2, 0], fitted.bias[0])]
    [1.0, 2.0, 5.0]
    """
    view_x, view_y = _matched(x, y)
    mean_x, mean_y = view_x.mean(dim=0), view_y.mean(dim=0)
    # gelsd: by singular values, so that directions in which x does not vary get weight 0.
    weight = torch.linalg.lstsq(view_x - mean_x, view_y - mean_y, driver="gelsd").solution
    return LinearMap(weight=weight, bias=mean_y - mean_x @ weight)


def procrustes_map(x: Tensor | np.ndarray, y: Tensor | np.ndarray) -> LinearMap:
    r"""The rotation (and shift) with the smallest squared error: all angles within x stay as they are.

    $$ W = \arg\min_{W^\top W = I} \| X_c W - Y_c \|_F = U V^\top, \qquad U S V^\top = \mathrm{SVD}(X_c^\top Y_c) $$

    Between spaces of different width W is semi-orthogonal: it drops directions, or leaves some empty.

    Args:
        x: (word, width_x), float32 or float64; computed in float64.
        y: (word, width_y), row i the counterpart of row i of x.

    Raises:
        UserError: Not matrices of as many rows, or not finite.

    Source: [@schonemann1966].

    >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(procrustes_map(x, x.flip(1) + 1)(x), x.flip(1).double() + 1))
    True
    """
    view_x, view_y = _matched(x, y)
    mean_x, mean_y = view_x.mean(dim=0), view_y.mean(dim=0)
    u, _, vt = torch.linalg.svd((view_x - mean_x).mT @ (view_y - mean_y), full_matrices=False)
    weight = u @ vt
    return LinearMap(weight=weight, bias=mean_y - mean_x @ weight)


def _matched(
    x: Tensor | np.ndarray, y: Tensor | np.ndarray
) -> tuple[Float[Tensor, "word width_x"], Float[Tensor, "word width_y"]]:
    views = as_tensor(x).to(torch.float64), as_tensor(y).to(torch.float64)
    shapes = [tuple(view.shape) for view in views]
    if any(len(shape) != 2 or 0 in shape for shape in shapes) or shapes[0][0] != shapes[1][0]:
        raise UserError(f"x and y must be matrices of one row per linked word. Got shapes {shapes[0]} and {shapes[1]}.")
    if not all(bool(view.isfinite().all()) for view in views):
        raise UserError("x and y must be finite. One holds NaN or infinity: drop those rows first.")
    return views
