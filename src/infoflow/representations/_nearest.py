"""Nearest neighbours by blocked matrix products, and how often they share a label."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import fast_linear

from ._views import Matrix, States, as_labels, as_view

METRICS = ("cosine", "euclidean")

_QUERIES, _ROWS = 4096, 4096
"""Queries and rows for which scores are computed from one copy of both.

Only one block of rows is copied at a time. A million rows of width 768 take 3.1 GB, and the search only 0.3 GB more.
"""
_AT_ONCE = 1024  # queries in one block of scores (16 MB in float32)
_ROWS_BY_FAISS = 65_536
"""Rows given to faiss at a time. It splits them itself, and is as fast on this many as on all."""


class Neighbours(NamedTuple):
    """Neighbours of some queries, nearest first; the query itself is not among them."""

    queries: Int[Tensor, " query"]
    indices: Int[Tensor, "query neighbour"]


class _Best(NamedTuple):
    """The nearest rows found so far, in descending order of score; scores are comparable only within one query."""

    scores: Float[Tensor, "query neighbour"]
    indices: Int[Tensor, "query neighbour"]


def nearest(x: States, k: int, metric: str, queries: Int[Tensor, " query"]) -> Iterator[Neighbours]:
    """The k nearest rows to each query row (all others if there are fewer), block by block.

    faiss (extra `faiss`) gives the same neighbours up to rounding and ties, about 1.3 to 2 times as fast.
    """
    by_faiss = find_spec("faiss") is not None and x.dtype == torch.float32
    search, step = (_search_by_faiss, _ROWS_BY_FAISS) if by_faiss else (_search, _ROWS)
    centre = x.mean(0)
    for chosen in queries.split(_QUERIES):
        wanted, _ = scored(x[chosen], metric, centre)
        best = None
        for start in range(0, len(x), step):
            base, offset = scored(x[start : start + step], metric, centre)
            best = search(best, wanted, base, offset, chosen - start, start, k)
        assert best is not None
        yield Neighbours(chosen, best.indices[:, : len(x) - 1])


def check_metric(metric: str) -> None:
    if metric not in METRICS:
        raise UserError(f'metric must be "cosine" or "euclidean". Got {metric}.')


def scored(
    x: States, metric: str, centre: Float[Tensor, " width"] | None = None
) -> tuple[States, Float[Tensor, " token"] | None]:
    """Rows, and an offset, such that inner products rank neighbours as the metric does.

    A zero vector has cosine 0 with every row.
    """
    if metric == "cosine":
        return torch.nn.functional.normalize(x, dim=1), None
    # Centring changes no distance, and keeps |x|² small where products would cancel.
    shifted = x - (x.mean(0) if centre is None else centre)
    return shifted, -shifted.square().sum(1) / 2


def _search(
    best: _Best | None,
    queries: Float[Tensor, "query width"],
    base: Float[Tensor, "row width"],
    offset: Float[Tensor, " row"] | None,
    own: Int[Tensor, " query"],
    start: int,
    k: int,
) -> _Best:
    """Add better rows of this block, which begins at row `start`; `own` is each query's row within the block."""
    parts = []
    for at in range(0, len(queries), _AT_ONCE):
        part = slice(at, at + _AT_ONCE)
        scores = fast_linear(queries[part], base, offset)
        here = ((own[part] >= 0) & (own[part] < len(base))).nonzero().squeeze(1)
        scores[here, own[part][here]] = -torch.inf
        known = None if best is None else _Best(*(column[part] for column in best))
        if known is None or known.scores.shape[1] < k:
            found = _Best(*scores.topk(min(k, len(base)), dim=1))
        else:
            found = _above(scores, known.scores[:, -1:])
        parts.append(_merged(known, _Best(found.scores, found.indices + start), k))
    return _Best(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _above(scores: Float[Tensor, "query row"], threshold: Float[Tensor, "query 1"]) -> _Best:
    """The few scores above each query's threshold, padded with −∞, in half the time of a `topk`."""
    queries, rows = np.nonzero((scores > threshold).numpy())
    counts = np.bincount(queries, minlength=len(scores))
    column = np.arange(len(queries)) - np.repeat(counts.cumsum() - counts, counts)
    padded = scores.new_full((len(scores), int(counts.max(initial=0))), -torch.inf)
    indices = torch.zeros(padded.shape, dtype=torch.long)
    padded[queries, column] = scores[queries, rows]
    indices[queries, column] = torch.from_numpy(rows)
    return _Best(padded, indices)


def _merged(best: _Best | None, found: _Best, k: int) -> _Best:
    if best is not None:
        found = _Best(*(torch.cat(columns, dim=1) for columns in zip(best, found, strict=True)))
    scores, order = found.scores.topk(min(k, found.scores.shape[1]), dim=1)
    return _Best(scores, found.indices.gather(1, order))


def _search_by_faiss(
    best: _Best | None,
    queries: Float[Tensor, "query width"],
    base: Float[Tensor, "row width"],
    offset: Float[Tensor, " row"] | None,
    own: Int[Tensor, " query"],
    start: int,
    k: int,
) -> _Best:
    """`_search` by faiss, with an extra slot for the query itself among its neighbours."""
    import faiss  # pyright: ignore[reportMissingImports]  # the extra `faiss`

    metric = faiss.METRIC_INNER_PRODUCT if offset is None else faiss.METRIC_L2
    with threadpool_limits(limits=torch.get_num_threads()):
        found = faiss.knn(queries.numpy(), base.numpy(), min(k + 1, len(base)), metric=metric)
    scores, indices = torch.from_numpy(found[0]), torch.from_numpy(found[1])
    scores = scores if offset is None else -scores
    scores = scores.masked_fill(indices == own[:, None], -torch.inf)
    return _merged(best, _Best(scores, indices + start), k)


MODES = ("require", "cap", "normalise")


class NeighbourAgreement(NamedTuple):
    """Agreement of each query with its neighbours, and with random neighbours."""

    queries: Int[np.ndarray, " query"]
    scores: Float[np.ndarray, " query"]
    chance: Float[np.ndarray, " query"]
    pulls: Float[np.ndarray, " token"]
    """By how much each row, as a neighbour of others, raises the sum of scores compared with the next nearest row."""


def neighbour_agreement(
    x: Matrix, labels: Tensor | np.ndarray | list, k: int = 50, few: str = "require", metric: str = "cosine"
) -> float:
    r"""Fraction of each row's k nearest other rows that carry its label, averaged over rows.

    $$ \frac{1}{|Q|} \sum_{i \in Q} \frac{1}{k} \sum_{j \in N_k(i)} [y_i = y_j] $$

    A label with n ≤ k rows cannot score more than (n − 1)/k. `few` says how such labels are treated:

    | `few`         | rows Q                          | score                                   |
    |---------------|---------------------------------|-----------------------------------------|
    | `"require"`   | of labels with at least k + 1   | as above                                |
    | `"cap"`       | of labels with at least 2       | over min(k, n − 1) neighbours           |
    | `"normalise"` | of labels with at least 2       | divided by min(1, (n − 1)/k)            |

    Every mode searches for neighbours among all rows.

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


def agreements(x: States, labels: Int[np.ndarray, " token"], k: int, few: str, metric: str) -> NeighbourAgreement:
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
    x: States,
    labels: Int[Tensor, " token"],
    k: int,
    metric: str,
    queries: Int[Tensor, " query"],
    wanted: Int[np.ndarray, " query"],
    share: Float[np.ndarray, " query"],
) -> tuple[Float[np.ndarray, " query"], Float[np.ndarray, " token"]]:
    """How many of each query's first `wanted` neighbours have its label, and each row's effect on the sum of scores."""
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
