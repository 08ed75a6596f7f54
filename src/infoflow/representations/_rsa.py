"""Representational similarity analysis."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError

from ._views import Matrix, as_view, as_views, centred

DISSIMILARITIES = ("cosine", "euclidean", "correlation")

_ROWS_AT_ONCE = 512
_DECIMALS = 12
"""Equal angles differ by rounding beyond these, which must not affect ranks."""


def rsa(x: Matrix, y: Matrix, metric: str = "cosine") -> float:
    r"""Rank correlation of the distances between tokens in two views.

    Spearman's correlation of the upper triangles of the two dissimilarity matrices; ties get their average rank.
    Dissimilarity is $1 - \cos$, the Euclidean distance, or $1 -$ Pearson's correlation.

    Args:
        x: (token, width_x), float32 or float64; computed in float64.
        y: (token, width_y), the same tokens in the same order.
        metric: `"cosine"`, `"euclidean"` or `"correlation"`.

    Returns:
        Correlation in [−1, 1]; NaN where all distances of a view are equal.

    Raises:
        UserError: Unknown metric, fewer than 3 tokens, or a zero vector (constant for `"correlation"`), which has
            no direction.

    Source: [@kriegeskorte2008]. For many pairs of views, rank each once (`dissimilarity_ranks`).

    >>> x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    >>> round(rsa(x, 3 * x.flip(1)), 6)
    1.0
    """
    view_x, view_y = as_views(x, y)
    return rank_correlation(dissimilarity_ranks(view_x, metric), dissimilarity_ranks(view_y, metric))


def dissimilarity_ranks(x: Matrix, metric: str = "cosine") -> Float[np.ndarray, " pair"]:
    """Centred average ranks of the distances between all pairs of tokens, scaled to norm 1."""
    ranks = centred_ranks(x, metric)
    norm = np.linalg.norm(ranks)
    return ranks / norm if norm > 0 else np.full_like(ranks, np.nan)


def centred_ranks(x: Matrix, metric: str = "cosine") -> Float[np.ndarray, " pair"]:
    """Average ranks of the distances between all pairs of tokens, minus their mean.

    Pairs come row by row of the upper triangle.
    """
    check_dissimilarity(metric)
    view = as_view(x, "x")
    if len(view) < 3:
        raise UserError(f"RSA needs at least 3 tokens. Got {len(view)}.")
    ranks = _average_ranks(_dissimilarities(view, metric))
    ranks -= ranks.mean()
    return ranks


def check_dissimilarity(metric: str) -> None:
    if metric not in DISSIMILARITIES:
        raise UserError(f'metric must be "cosine", "euclidean" or "correlation". Got {metric}.')


def rank_correlation(x: Float[np.ndarray, " pair"], y: Float[np.ndarray, " pair"]) -> float:
    """Spearman's correlation from two results of `dissimilarity_ranks`."""
    return float(np.clip(x @ y, -1, 1))


def _dissimilarities(x: Float[Tensor, "token width"], metric: str) -> Float[np.ndarray, " pair"]:
    if metric == "euclidean":
        return torch.nn.functional.pdist(x).numpy()
    if metric == "correlation":
        x = centred(x.mT).mT
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    if bool((norms == 0).any()):
        raise UserError(
            f'{int((norms == 0).sum())} rows have no direction, so metric="{metric}" is undefined for them.'
        )
    units = x / norms
    pairs = [_cosines_above_diagonal(units, start) for start in range(0, len(x), _ROWS_AT_ONCE)]
    return (1 - torch.cat(pairs).round_(decimals=_DECIMALS)).numpy()


def _cosines_above_diagonal(units: Float[Tensor, "token width"], start: int) -> Float[Tensor, " pair"]:
    """Cosines of a block of rows with all rows after each."""
    similar = units[start : start + _ROWS_AT_ONCE] @ units[start:].mT
    return torch.cat([cosines[row + 1 :] for row, cosines in enumerate(similar)])


def _average_ranks(values: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " pair"]:
    order = np.argsort(values)
    ordered = values[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    last = np.append(first[1:], len(values))
    ranks = np.empty(len(values))
    ranks[order] = (
        np.arange(len(values)) if len(first) == len(values) else np.repeat((first + last - 1) / 2, last - first)
    )
    return ranks
