"""How noisy gradients are: the batch from which on larger ones hardly help."""

import numpy as np
from numpy.typing import ArrayLike

from infoflow.foundation import UserError


def noise_scale(small: ArrayLike, large: ArrayLike, b: int, B: int) -> float:
    r"""\(S / G^2\), in examples ([@mccandlish2018empirical]).

    $$ G^2 = \frac{B |g_B|^2 - b |g_b|^2}{B - b}, \qquad S = \frac{|g_b|^2 - |g_B|^2}{1/b - 1/B} $$

    Both are averaged *before* they are divided: each is without bias, their ratio is not. NaN where the mean of G² is
    not above 0.

    Args:
        small: Squared norms of gradients of `b` examples.
        large: Squared norms of gradients of `B` examples.
        b: Examples of a small batch.
        B: Examples of a large batch.

    Raises:
        UserError: The large batch is not larger.

    >>> noise_scale(5, 2.5, 4, 24)
    6.0
    """
    if not 0 < b < B:
        raise UserError(f"A noise scale needs gradients of batches of two sizes, the smaller first. Got {b} and {B}.")
    of_small, of_large = float(np.mean(small)), float(np.mean(large))
    signal = (B * of_large - b * of_small) / (B - b)
    noise = (of_small - of_large) / (1 / b - 1 / B)
    return noise / signal if signal > 0 else float("nan")
