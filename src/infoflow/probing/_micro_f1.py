"""Micro-averaged F1, with labels that do not count."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Shaped

Labels = Shaped[np.ndarray, "*example"]


def micro_f1(predicted: np.ndarray, gold: np.ndarray, ignored: Sequence[int] = ()) -> float:
    r"""$2\,\mathrm{TP} / (\text{predicted} + \text{gold})$ over all labels but the ignored ones, from 0 to 1.

    Without ignored labels and with one label each it is accuracy. Labels: numbers (examples,), or which labels an
    example has, (examples, classes). NaN where no label counts.

    Source: [@tenney2019edge]: of coreference the label "1" alone counts, of relations all but "no_relation".

    >>> micro_f1(np.array([1, 0, 1]), np.array([1, 1, 0]), ignored=[0])
    0.5
    """
    hits, named = f1_counts(predicted, gold, ignored)
    return float(2 * hits.sum() / named.sum()) if named.sum() else float("nan")


def f1_counts(
    predicted: np.ndarray, gold: np.ndarray, ignored: Sequence[int] = ()
) -> tuple[Float[np.ndarray, "*example"], Float[np.ndarray, "*example"]]:
    """Of each example its true positives, and how many labels are predicted or gold; `gold` is broadcast."""
    if gold.dtype == bool:
        counted = np.ones(gold.shape[-1], dtype=bool)
        counted[list(ignored)] = False
        hits = (predicted & gold & counted).sum(-1)
        named = (predicted & counted).sum(-1) + (gold & counted).sum(-1)
    else:
        first, second = ~np.isin(predicted, list(ignored)), ~np.isin(gold, list(ignored))
        hits, named = (predicted == gold) & second, first.astype(int) + second
    return hits.astype(np.float64), named.astype(np.float64)
