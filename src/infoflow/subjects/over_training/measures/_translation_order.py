"""The share of a translation that depends on its source, and its word order."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from infoflow.foundation import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Reordering:
    """How monotone an alignment is: 1 if the target follows the source word by word."""

    frs_b: float  # fuzzy reordering score over the steps between aligned words
    frs_a: float  # the same with the steps from the beginning and to the end
    tau_share: float  # share of pairs of words in order; ties are in order


def fuzzy_reordering(ranks: ArrayLike) -> Reordering:
    r"""Fuzzy reordering scores and share of ordered pairs, from source ranks in target order.

    $$ \mathrm{FRS}_B = 1 - \frac{\mathrm{jumps}}{n - 1}, \qquad \mathrm{FRS}_A = 1 - \frac{\mathrm{jumps}_A}{n + 1},
       \qquad \tau = 1 - \frac{\mathrm{inversions}}{n (n - 1) / 2} $$

    A step of 0 or +1 is not a jump; A also counts a start and an end that are not a step of +1. All are 1 below two
    words. Which variant [@voita2021language] used is unverified, so both are given.

    Args:
        ranks: Source positions of the aligned words, in target order; renumbered without unaligned words.

    >>> fuzzy_reordering([0, 1, 4, 2, 3])
    Reordering(frs_b=0.5, frs_a=0.5, tau_share=0.8)
    """
    order = np.asarray(ranks)
    if order.ndim != 1:
        raise UserError(f"Ranks of source words must be one list in target order. Got shape {order.shape}.")
    num = len(order)
    if num < 2:
        return Reordering(frs_b=1.0, frs_a=1.0, tau_share=1.0)
    known, dense = np.unique(order, return_inverse=True)
    steps = np.diff(dense)
    jumps = int(((steps != 0) & (steps != 1)).sum())
    ends = int(dense[0] != 0) + int(dense[-1] != len(known) - 1)
    inversions = int((dense[:, None] > dense)[np.triu_indices(num, 1)].sum())
    return Reordering(
        frs_b=1 - jumps / (num - 1),
        frs_a=1 - (jumps + ends) / (num + 1),
        tau_share=1 - inversions / (num * (num - 1) / 2),
    )


def source_share(source: ArrayLike, prefix: ArrayLike) -> tuple[float, float]:
    r"""Share of the relevance on the source, and the entropy of its distribution over source tokens, in nats.

    $$ \frac{\sum_{src} r}{\sum_{src} r + \sum_{prefix} r}, \qquad -\sum_{src} p \ln p, \quad p = r / \sum_{src} r $$

    ([@voita2021]). NaN without relevance.

    Args:
        source: Relevance of each source token, (token,), or of its dimensions, (token, width): then r is the sum of
            their absolute values.
        prefix: Likewise for the tokens written so far.

    >>> [round(number, 4) for number in source_share([0.3, 0.2, 0.1], [0.25, 0.15])]
    [0.6, 1.0114]
    """
    of_source, of_prefix = (_by_token(values) for values in (source, prefix))
    total, whole = of_source.sum(), of_source.sum() + of_prefix.sum()
    if not whole > 0:
        return float("nan"), float("nan")
    shares = of_source[of_source > 0] / total
    entropy = float(-(shares * np.log(shares)).sum()) if total > 0 else float("nan")
    return float(total / whole), entropy


def _by_token(values: ArrayLike) -> np.ndarray:
    relevance = np.abs(np.asarray(values, dtype=np.float64))
    return relevance.sum(axis=-1) if relevance.ndim == 2 else relevance
