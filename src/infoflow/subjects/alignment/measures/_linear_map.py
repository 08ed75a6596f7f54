"""Closed-form maps from one space to another: an alignment that leaves the encoder unchanged."""

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
    r"""The affine map with the smallest squared error; ties go to the smallest weights.

    $$ W, b = \arg\min \| X W + 1 b^\top - Y \|_F^2 $$

    The optimum of the explicit alignment if only its projection is trained, without a regulariser.

    Args:
        x: (word, width_x), float32 or float64; computed in float64.
        y: (word, width_y), row i the counterpart of row i of x.

    Raises:
        UserError: Not matrices, different numbers of rows, or not finite.

    Source: [@mikolov2013] (without b).

    >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> fitted = least_squares_map(x, x @ torch.tensor([[1.0], [2.0], [0.0]]) + 5)
    >>> [round(float(value), 6) for value in (*fitted.weight[:2, 0], fitted.bias[0])]
    [1.0, 2.0, 5.0]
    """
    view_x, view_y = _matched(x, y)
    mean_x, mean_y = view_x.mean(dim=0), view_y.mean(dim=0)
    # gelsd: by singular values, so that directions in which x is constant get weight 0.
    weight = torch.linalg.lstsq(view_x - mean_x, view_y - mean_y, driver="gelsd").solution
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
