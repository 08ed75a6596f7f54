"""Other similarities of two views: linear CKA, Procrustes distance, maximum explainable variance."""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, current_display

from ._cca import thin_svd
from ._views import Matrix, States, as_view, as_views, centred, gram

LEAST_ROWS = 4  # the debiased estimate divides by n − 3


def linear_cka(x: Matrix, y: Matrix, debiased: bool = False) -> float:
    r"""Linear centred kernel alignment: how similar the inner products between tokens are in two views.

    $$ \mathrm{CKA} = \frac{\mathrm{HSIC}(K, L)}{\sqrt{\mathrm{HSIC}(K, K)\,\mathrm{HSIC}(L, L)}}, \qquad
       K = X X^\top, \quad L = Y Y^\top $$

    Biased: $\mathrm{HSIC}(K, L) = \|Y_c^\top X_c\|_F^2$ with centred columns; strongly inflated when n ≲ d.
    Debiased, with $\tilde K$, $\tilde L$ the Gram matrices with zeroed diagonal:

    $$ \mathrm{HSIC}_1 = \frac{1}{n(n-3)} \Big[ \mathrm{tr}(\tilde K \tilde L)
       + \frac{(1^\top \tilde K 1)(1^\top \tilde L 1)}{(n-1)(n-2)}
       - \frac{2}{n-2} 1^\top \tilde K \tilde L 1 \Big] $$

    It is invariant to rotation, isotropic scaling and translation, but not to general linear maps. Cost O(n d²).

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
    hsic = hsic_debiased if debiased else _gram_product
    pairs = (view_x, view_y), (view_x, view_x), (view_y, view_y)
    return _ratio(*(float(hsic(*pair)) for pair in pairs))


def minibatch_cka(batches: Iterable[tuple[Matrix, Matrix]]) -> float:
    r"""Debiased CKA of data that come in batches; it needs the memory of one batch only.

    $$ \mathrm{CKA} = \frac{\sum_b \mathrm{HSIC}_1(K_b, L_b)}
       {\sqrt{\sum_b \mathrm{HSIC}_1(K_b, K_b)}\,\sqrt{\sum_b \mathrm{HSIC}_1(L_b, L_b)}} $$

    $\mathrm{HSIC}_1$ as in `linear_cka`. Each term is unbiased for any batch size, so the ratio of their sums estimates
    the CKA of all rows together. The mean of the batches' CKA does not. Tokens should be assigned to batches at random,
    since neighbouring tokens of a text are more alike than random tokens of the corpus.

    Args:
        batches: Pairs (x, y) as for `linear_cka`, consumed once; all have the same widths and at least 4 rows each.

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


def hsic_debiased(x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]) -> float:
    """Song et al.'s unbiased estimate of HSIC, from features; centre the views first for better precision."""
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


_LEAST_EIGENVALUE = 1e-12  # directions below this share of the largest do not count, and are not amplified by whitening


def procrustes_distance(x: Matrix, y: Matrix, kind: str = "angle", alpha: float = 1.0) -> float:
    r"""Distance between two views after the best rotation.

    $$ \theta = \arccos \frac{\| X_c^\top Y_c \|_*}{\| X_c \|_F \, \| Y_c \|_F}, \qquad
       \rho = \sqrt{\| X_c \|_F^2 + \| Y_c \|_F^2 - 2 \| X_c^\top Y_c \|_*} $$

    $\|\cdot\|_*$ is the nuclear norm, $X_c$ and $Y_c$ have centred columns. Both are metrics: the angle θ compares
    shapes, and is invariant to rotation, reflection, isotropic scaling and translation; the distance ρ also compares
    sizes, in the units of the states. Views of different width are compared as if padded with zeros.

    With `alpha` below 1 each view is first partly whitened: $X_c (\alpha I + (1 - \alpha)(X_c^\top X_c)^{-1/2})$. At 0
    the angle is that of canonical correlation, invariant to every invertible affine map. In between, it depends on
    scale.

    Args:
        x: (token, width_x), float32 or float64; computed in float64.
        y: (token, width_y), the same tokens in the same order.
        kind: `"angle"`, in radians, or `"size-and-shape"`.
        alpha: From 1, no whitening, to 0, full whitening.

    Returns:
        The distance: an angle in [0, π/2], or a size-and-shape distance of at least 0.

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


def _partly_whitened(x: States, alpha: float) -> States:
    values, vectors = torch.linalg.eigh(x.mT @ x)
    kept = values > _LEAST_EIGENVALUE * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    factors = alpha + (1 - alpha) * values.rsqrt()
    factors *= (values.sum() / (factors.square() * values).sum()).sqrt()
    return x @ (vectors * factors) @ vectors.mT


def maximum_explainable_variance(x: Matrix) -> float:
    r"""Share of the variance of a word's occurrences that one direction explains.

    $$ \mathrm{MEV} = \frac{\sigma_1^2}{\sum_i \sigma_i^2} $$

    $\sigma_i$ are the singular values of the centred occurrences. It measures how well one static vector could replace
    a word's occurrences; the baseline is the value for random occurrences. Always 1 for two occurrences.

    Args:
        x: (occurrence, width), float32 or float64; computed in float64.

    Returns:
        Share in (0, 1]; NaN for constant occurrences.

    Source: [@ethayarajh2019], who centre words but not their baseline; centre both.

    >>> maximum_explainable_variance(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    0.5
    """
    variances = thin_svd(centred(as_view(x, "x", least_rows=0))).singular.square()
    return float(variances[0] / variances.sum()) if variances.sum() > 0 else math.nan
