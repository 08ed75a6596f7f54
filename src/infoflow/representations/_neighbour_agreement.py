"""How often neighbours share a label."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError

from ._nearest import check_metric, nearest
from ._views import Matrix, as_labels, as_view

MODES = ("require", "cap", "normalise")


class NeighbourAgreement(NamedTuple):
    """Agreement of each query with its neighbours, and with random neighbours."""

    queries: Int[np.ndarray, " query"]
    scores: Float[np.ndarray, " query"]
    chance: Float[np.ndarray, " query"]
    pulls: Float[np.ndarray, " token"]
    """By how much each row, as a neighbour of others, raises the sum of scores compared with the next nearest row."""


def neighbour_agreement(
    x: Matrix,
    labels: Tensor | np.ndarray | list,
    k: int = 50,
    few: str = "require",
    metric: str = "cosine",
) -> float:
    r"""Fraction of each row's k nearest other rows that carry its label, averaged over rows.

    $$ \frac{1}{|Q|} \sum_{i \in Q} \frac{1}{k} \sum_{j \in N_k(i)} [y_i = y_j] $$

    A label with n rows cannot reach more than (n − 1)/k, hence `few`:

    | `few`         | rows Q                          | score                                   |
    |---------------|---------------------------------|-----------------------------------------|
    | `"require"`   | of labels with at least k + 1   | as above                                |
    | `"cap"`       | of labels with at least 2       | over min(k, n − 1) neighbours           |
    | `"normalise"` | of labels with at least 2       | divided by min(1, (n − 1)/k)            |

    Neighbours are searched among all rows in every mode.

    Args:
        x: (token, width), float32 or float64.
        labels: (token,) labels of any kind, for example token ids.
        k: Number of neighbours.
        few: What to do with labels of fewer than k + 1 rows.
        metric: `"cosine"` or `"euclidean"`; the paper does not say which it used.

    Returns:
        Fraction in [0, 1]. Random neighbours give Σ p², with p the labels' shares.

    Raises:
        UserError: k below 1, an unknown mode or metric, or no label with enough rows.

    Source: [@voita2019evolution].

    >>> neighbour_agreement(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]), [0, 0, 1, 1], k=1)
    1.0
    """
    view = as_view(x, "x", dtype=None)
    agreement = agreements(view, as_labels(labels, "labels", len(view)), k, few, metric)
    if len(agreement.queries) == 0:
        needed = k + 1 if few == "require" else 2
        raise UserError(
            f'No label has the {needed} rows that k = {k} with few="{few}" needs. '
            'Use more rows, a smaller k, or few="cap".'
        )
    return float(agreement.scores.mean())


def agreements(
    x: Float[Tensor, "token width"],
    labels: Int[np.ndarray, " token"],
    k: int,
    few: str,
    metric: str,
) -> NeighbourAgreement:
    """The score and the chance level of every row that counts; empty if no label has enough rows."""
    check_neighbours(k, few, metric)
    others = np.bincount(labels)[labels] - 1  # other rows with the same label
    queries = np.flatnonzero(others >= (k if few == "require" else 1))
    if len(queries) == 0:
        return NeighbourAgreement(queries, np.empty(0), np.empty(0), np.zeros(len(x)))
    wanted = np.minimum(k, others[queries]) if few == "cap" else np.full(len(queries), k)
    share = 1 / wanted / (np.minimum(1, others[queries] / k) if few == "normalise" else 1.0)
    hits, pulls = _hits(x, torch.from_numpy(labels), k, metric, torch.from_numpy(queries), wanted, share)
    chance = others[queries] / (len(x) - 1)
    return NeighbourAgreement(queries, hits * share, chance * share * wanted, pulls)


def check_neighbours(k: int, few: str, metric: str) -> None:
    """Raise UserError for impossible settings."""
    check_metric(metric)
    if k < 1:
        raise UserError(f"k must be at least 1, the number of neighbours. Got {k}.")
    if few not in MODES:
        raise UserError(f'few must be "require", "cap" or "normalise". Got {few}.')


def _hits(
    x: Float[Tensor, "token width"],
    labels: Int[Tensor, " token"],
    k: int,
    metric: str,
    queries: Int[Tensor, " query"],
    wanted: Int[np.ndarray, " query"],
    share: Float[np.ndarray, " query"],
) -> tuple[Float[np.ndarray, " query"], Float[np.ndarray, " token"]]:
    """How many of each query's first `wanted` neighbours have its label, and every row's pull on the sum of scores."""
    hits, pulls, start = [], np.zeros(len(x)), 0
    for found in nearest(x, k + 1, metric, queries):  # one more, to replace an omitted neighbour
        part = slice(start, start + len(found.queries))
        start = part.stop
        same = (labels[found.indices] == labels[found.queries, None]).numpy()
        within = np.arange(same.shape[1]) < wanted[part, None]
        hits.append((same & within).sum(axis=1))
        last = np.minimum(wanted[part], same.shape[1] - 1)
        gain = (same.astype(float) - np.take_along_axis(same, last[:, None], axis=1)) * share[part, None]
        pulls += np.bincount(found.indices[within].numpy(), weights=gain[within], minlength=len(x))
    return np.concatenate(hits).astype(float), pulls
