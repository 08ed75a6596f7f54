"""Mutual information of two labellings."""

import numpy as np
from jaxtyping import Int
from torch import Tensor

from ._entropy import entropy
from ._views import as_labels


def mutual_information(
    a: Tensor | np.ndarray | list, b: Tensor | np.ndarray | list, estimator: str = "plug-in"
) -> float:
    r"""Mutual information of two label vectors, in nats.

    $$ I = H(A) + H(B) - H(A, B) = \sum_{a,b} p(a,b) \ln \frac{p(a,b)}{p(a)\,p(b)} $$

    The plug-in estimate uses shares as probabilities. It is biased upwards by about (m_ab − m_a − m_b + 1) / 2N for m
    non-empty cells and N observations; the other estimators correct the three entropies (see `entropy`), and may be
    negative.

    Args:
        a: (token,) labels of any kind.
        b: (token,) labels of the same tokens.
        estimator: `"plug-in"`, `"miller-madow"`, `"grassberger"`, `"chao-shen"` or `"chao-wang-jost"`.

    Returns:
        Information; the plug-in estimate is in [0, min(H(a), H(b))].

    Raises:
        UserError: The vectors are empty or differ in length, or there is no such estimator.

    >>> round(mutual_information([0, 0, 1, 1], [5, 5, 7, 7]), 4)
    0.6931
    """
    labels_a = as_labels(a, "a")
    labels_b = as_labels(b, "b", len(labels_a))
    cells = labels_a.astype(np.int64) * (int(labels_b.max()) + 1) + labels_b
    of_a, of_b, of_cells = (entropy(_counts(labels), estimator) for labels in (labels_a, labels_b, cells))
    information = of_a + of_b - of_cells
    return max(0.0, information) if estimator == "plug-in" else information  # rounding may leave −1e-16


def _counts(labels: Int[np.ndarray, " token"]) -> Int[np.ndarray, " label"]:
    return np.unique(labels, return_counts=True)[1]
