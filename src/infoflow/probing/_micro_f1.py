"""Micro-averaged F1, with ignored labels."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Shaped

Labels = Shaped[np.ndarray, "*example"]


def micro_f1(predicted: np.ndarray, gold: np.ndarray, ignored: Sequence[int] = ()) -> float:
    r"""$2\,\mathrm{TP} / (\text{predicted} + \text{gold})$ over all labels except the ignored ones, from 0 to 1.

    With no ignored labels and one label per example it is accuracy. Labels: numbers (examples,), or a mask of each
    example's labels, (examples, classes). NaN if no label counts.

    Source: [@tenney2019edge]: in coreference only the label "1" counts, in relations all but "no_relation".

    >>> micro_f1(np.array([1, 0, 1]), np.array([1, 1, 0]), ignored=[0])
    0.5
    """
    hits, named = f1_counts(predicted, gold, ignored)
    return float(2 * hits.sum() / named.sum()) if named.sum() else float("nan")


def f1_counts(
    predicted: np.ndarray, gold: np.ndarray, ignored: Sequence[int] = ()
) -> tuple[Float[np.ndarray, "*example"], Float[np.ndarray, "*example"]]:
    """True positives of each example, and its number of predicted plus gold labels; `gold` is broadcast."""
    if gold.dtype == bool:
        counted = np.ones(gold.shape[-1], dtype=bool)
        counted[list(ignored)] = False
        hits = (predicted & gold & counted).sum(-1)
        named = (predicted & counted).sum(-1) + (gold & counted).sum(-1)
    else:
        first, second = ~np.isin(predicted, list(ignored)), ~np.isin(gold, list(ignored))
        hits, named = (predicted == gold) & second, first.astype(int) + second
    return hits.astype(np.float64), named.astype(np.float64)
