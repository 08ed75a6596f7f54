"""Linear centred kernel alignment."""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, current_display

from ._token_products import gram
from ._views import Matrix, as_views, centred

LEAST_ROWS = 4
"""The debiased estimate divides by n − 3."""


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
    if debiased and len(view_x) < LEAST_ROWS:
        raise UserError(f"Debiased CKA needs at least {LEAST_ROWS} tokens. Got {len(view_x)}.")
    # Centring does not change the debiased value, but keeps its large terms from cancelling.
    view_x, view_y = centred(view_x), centred(view_y)
    hsic = hsic_debiased if debiased else _hsic_biased
    return _ratio(hsic(view_x, view_y), hsic(view_x, view_x), hsic(view_y, view_y))


def minibatch_cka(batches: Iterable[tuple[Matrix, Matrix]]) -> float:
    r"""Debiased CKA of data that come in batches, in the memory of one batch.

    $$ \mathrm{CKA} = \frac{\sum_b \mathrm{HSIC}_1(K_b, L_b)}
       {\sqrt{\sum_b \mathrm{HSIC}_1(K_b, K_b)}\,\sqrt{\sum_b \mathrm{HSIC}_1(L_b, L_b)}} $$

    $\mathrm{HSIC}_1$ as in `linear_cka`. Each term is unbiased whatever the size of a batch, so their sums estimate
    what all rows together would give; the mean of the batches' CKA does not. Tokens should fall into batches at
    random: neighbours in a text are more alike than the tokens of a corpus.

    Args:
        batches: Pairs (x, y) as for `linear_cka`, consumed once; widths are the same in all, each at least 4 rows.

    Returns:
        Similarity, at most about 1 and possibly negative. NaN with a warning where a sum of self terms is not positive.

    Raises:
        UserError: A batch of fewer than 4 tokens, views of different length or not finite.

    Source: [@nguyen2021], with [@song2012].

    >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    >>> round(minibatch_cka(zip(x.split(20), 3 * x.flip(1).split(20))), 6)
    1.0
    """
    cross = self_x = self_y = 0.0
    for x, y in batches:
        view_x, view_y = (centred(view) for view in as_views(x, y))
        if len(view_x) < LEAST_ROWS:
            raise UserError(f"Each batch needs at least {LEAST_ROWS} tokens. Got {len(view_x)}: leave that batch out.")
        cross += hsic_debiased(view_x, view_y)
        self_x += hsic_debiased(view_x, view_x)
        self_y += hsic_debiased(view_y, view_y)
    return _ratio(cross, self_x, self_y)


def _ratio(cross: float, self_x: float, self_y: float) -> float:
    """CKA from its three terms. A negative `cross` is an estimate near 0; a negative self term makes CKA undefined."""
    if self_x <= 0 or self_y <= 0:
        current_display().warn("CKA is undefined: a view has no self-similarity (too few tokens, or no variation).")
        return math.nan
    return cross / math.sqrt(self_x * self_y)


def _hsic_biased(x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]) -> float:
    return float(_gram_product(x, y))


def hsic_debiased(x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]) -> float:
    """Song et al.'s unbiased estimate, in feature space; centre the views for precision."""
    n = len(x)
    diagonal_k, diagonal_l = x.square().sum(1), y.square().sum(1)
    rows_k, rows_l = x @ x.sum(0) - diagonal_k, y @ y.sum(0) - diagonal_l
    trace = _gram_product(x, y) - diagonal_k @ diagonal_l
    sums = rows_k.sum() * rows_l.sum() / ((n - 1) * (n - 2))
    return float((trace + sums - 2 / (n - 2) * (rows_k @ rows_l)) / (n * (n - 3)))


def _gram_product(x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]) -> Float[Tensor, ""]:
    """tr(K L), computed through the smaller of the two matrix shapes."""
    if len(x) < min(x.shape[1], y.shape[1]):
        return ((x @ x.mT) * (y @ y.mT)).sum()
    return torch.linalg.matrix_norm(gram(x) if x is y else x.mT @ y).square()
