"""Linear centred kernel alignment."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, current_display

from ._views import Matrix, as_views, centred


def linear_cka(x: Matrix, y: Matrix, debiased: bool = False) -> float:
    r"""Similarity of the inner products between tokens in two views.

    $$ \mathrm{CKA} = \frac{\mathrm{HSIC}(K, L)}{\sqrt{\mathrm{HSIC}(K, K)\,\mathrm{HSIC}(L, L)}}, \qquad
       K = X X^\top, \quad L = Y Y^\top $$

    Biased: $\mathrm{HSIC}(K, L) = \|Y_c^\top X_c\|_F^2$ with centred columns; strongly inflated when n ≲ d.
    Debiased, with $\tilde K$, $\tilde L$ the Gram matrices with zeroed diagonal:

    $$ \mathrm{HSIC}_1 = \frac{1}{n(n-3)} \Big[ \mathrm{tr}(\tilde K \tilde L)
       + \frac{(1^\top \tilde K 1)(1^\top \tilde L 1)}{(n-1)(n-2)}
       - \frac{2}{n-2} 1^\top \tilde K \tilde L 1 \Big] $$

    Invariant to rotation, isotropic scaling and translation; not to general linear maps. Cost O(n d²).

    Args:
        x: (token, width_x), float32 or float64; computed in float64.
        y: (token, width_y), the same tokens in the same order.
        debiased: Use $\mathrm{HSIC}_1$; the result may then be slightly negative.

    Returns:
        Similarity in [0, 1] (debiased: at most 1). NaN with a warning where a view has no self-similarity.

    Raises:
        UserError: Views of different length or not finite; fewer than 4 tokens when debiased.

    Source: [@kornblith2019], debiased by [@song2012].

    >>> x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    >>> round(linear_cka(x, 3 * x.flip(1)), 6)
    1.0
    """
    view_x, view_y = as_views(x, y)
    if debiased and len(view_x) < 4:
        raise UserError(f"Debiased CKA needs at least 4 tokens. Got {len(view_x)}.")
    # Centring does not change the debiased value, but keeps its large terms from cancelling.
    view_x, view_y = centred(view_x), centred(view_y)
    hsic = _hsic_debiased if debiased else _hsic_biased
    self_x, self_y = hsic(view_x, view_x), hsic(view_y, view_y)
    if self_x <= 0 or self_y <= 0:
        current_display().warn("CKA is undefined: a view has no self-similarity (too few tokens, or no variation).")
        return math.nan
    return hsic(view_x, view_y) / math.sqrt(self_x * self_y)


def _hsic_biased(x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]) -> float:
    return float(_gram_product(x, y))


def _hsic_debiased(x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]) -> float:
    n = len(x)
    diagonal_k, diagonal_l = x.square().sum(1), y.square().sum(1)
    rows_k, rows_l = x @ x.sum(0) - diagonal_k, y @ y.sum(0) - diagonal_l
    trace = _gram_product(x, y) - diagonal_k @ diagonal_l
    sums = rows_k.sum() * rows_l.sum() / ((n - 1) * (n - 2))
    return float((trace + sums - 2 / (n - 2) * (rows_k @ rows_l)) / (n * (n - 3)))


def _gram_product(x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]) -> Float[Tensor, ""]:
    """tr(K L), through whichever of the two matrix shapes is smaller."""
    if len(x) < min(x.shape[1], y.shape[1]):
        return ((x @ x.mT) * (y @ y.mT)).sum()
    return torch.linalg.matrix_norm(x.mT @ y).square()
