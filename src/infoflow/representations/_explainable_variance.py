"""Maximum explainable variance."""

import math

from ._svd import thin_svd
from ._views import Matrix, as_view, centred


def maximum_explainable_variance(x: Matrix) -> float:
    r"""Share of the variance of a word's occurrences that one direction explains.

    $$ \mathrm{MEV} = \frac{\sigma_1^2}{\sum_i \sigma_i^2} $$

    $\sigma_i$ are the singular values of the centred occurrences. It measures how well one static vector per word could
    do; the baseline is the value of random occurrences. Always 1 for two occurrences.

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
