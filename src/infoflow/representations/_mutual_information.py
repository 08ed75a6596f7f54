"""Mutual information of two labellings."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import xlogy
from torch import Tensor

from ._views import as_labels


def mutual_information(a: Tensor | np.ndarray | list, b: Tensor | np.ndarray | list) -> float:
    r"""Plug-in mutual information of two label vectors, in nats.

    $$ I = \sum_{a,b} p(a,b) \ln \frac{p(a,b)}{p(a)\,p(b)} $$

    Biased upwards by about (m_ab − m_a − m_b + 1) / 2N for m non-empty cells and N observations (Miller–Madow).

    Args:
        a: (token,) labels of any kind.
        b: (token,) labels of the same tokens.

    Returns:
        Information in [0, min(H(a), H(b))].

    Raises:
        UserError: The vectors are empty or differ in length.

    >>> round(mutual_information([0, 0, 1, 1], [5, 5, 7, 7]), 4)
    0.6931
    """
    labels_a = as_labels(a, "a")
    return Contingency.of(labels_a, as_labels(b, "b", len(labels_a))).information


class Contingency(NamedTuple):
    """Counts of two labellings, cell by cell; only non-empty cells."""

    cells: Int[np.ndarray, " cell"]
    rows: Int[np.ndarray, " row"]
    columns: Int[np.ndarray, " column"]

    @classmethod
    def of(cls, a: Int[np.ndarray, " token"], b: Int[np.ndarray, " token"]) -> "Contingency":
        """Count the labels a and b, integers from 0."""
        _, cells = np.unique(_cell(a, b), return_counts=True)
        return cls(cells, _counts(a), _counts(b))

    @property
    def information(self) -> float:
        """Plug-in mutual information in nats."""
        # Rounding may leave −1e-16 for independent labels.
        return max(0.0, entropy(self.rows) + entropy(self.columns) - entropy(self.cells))

    @property
    def miller_madow(self) -> float:
        """Mutual information less its first-order bias; may be negative."""
        excess = len(self.cells) - len(self.rows) - len(self.columns) + 1
        return self.information - excess / (2 * int(self.rows.sum()))


def entropy(counts: np.ndarray) -> float:
    """Plug-in entropy of counts, in nats."""
    total = counts.sum()
    return float(np.log(total) - xlogy(counts, counts).sum() / total)


def information_without_blocks(
    a: Int[np.ndarray, " token"], b: Int[np.ndarray, " token"], blocks: Int[np.ndarray, " token"], num_blocks: int
) -> Float[np.ndarray, " block"]:
    """Mutual information of all tokens but those of each block; NaN where nothing is left."""
    rest = len(a) - np.bincount(blocks, minlength=num_blocks)
    sums = [_sums_without_blocks(labels, blocks, num_blocks) for labels in (_cell(a, b), a, b)]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(rest) + (sums[0] - sums[1] - sums[2]) / rest


def _sums_without_blocks(
    labels: Int[np.ndarray, " token"], blocks: Int[np.ndarray, " token"], num_blocks: int
) -> Float[np.ndarray, " block"]:
    """Σ n ln n over the counts n of the labels outside each block; only the labels in a block change its sum."""
    compact = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(compact)
    pairs, inside = np.unique(compact * num_blocks + blocks, return_counts=True)
    label, block = np.divmod(pairs, num_blocks)
    outside = counts[label] - inside
    change = xlogy(outside, outside) - xlogy(counts[label], counts[label])
    return xlogy(counts, counts).sum() + np.bincount(block, weights=change, minlength=num_blocks)


def _cell(a: Int[np.ndarray, " token"], b: Int[np.ndarray, " token"]) -> Int[np.ndarray, " token"]:
    return a.astype(np.int64) * (int(b.max()) + 1) + b


def _counts(labels: Int[np.ndarray, " token"]) -> Int[np.ndarray, " label"]:
    counts = np.bincount(labels)
    return counts[counts > 0]
