"""Singular vector canonical correlation."""

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError

from ._cca import cca_correlations
from ._svd import thin_svd
from ._views import Matrix, as_views, centred


def svcca(x: Matrix, y: Matrix, variance: float = 0.99) -> float:
    r"""Mean canonical correlation of the leading principal components of two views.

    $$ \mathrm{SVCCA} = \frac1r \sum_{i=1}^r \rho_i(X V_k, Y W_l) $$

    $V_k$ and $W_l$ are the fewest principal directions that explain `variance` of each view. Invariant to rotation,
    isotropic scaling and translation of either view; with few tokens biased like `pwcca`.

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


def _leading(x: Float[Tensor, "token width"], variance: float) -> Float[Tensor, "token component"]:
    left, singular, _ = thin_svd(centred(x))
    explained = singular.square().cumsum(0) / singular.square().sum().clamp(min=torch.finfo(x.dtype).tiny)
    # Rounding of the sum must not require one more component if `variance` is 1.
    num = int((explained < variance * (1 - 1e-12)).sum()) + 1
    return left[:, :num] * singular[:num]
