"""Mini-batch k-means: continuous states become labels."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from infoflow.foundation import UserError

from ._views import Matrix, as_view

BATCH_SIZE = 10_240
"""Measured on 200,000 points of 2,000 types with 1,000 clusters: information 6.2 nats; with batches of 1,024, 3.5."""
_RANDOM_START_FROM = 500
"""k-means++ costs minutes from here up, for nothing; below, a random start misses whole clusters."""
_MIN_STEPS = 20
"""Few points make one epoch a step or two, which leaves the centres where they started."""


class Clustering(NamedTuple):
    labels: Int[np.ndarray, " token"]
    inertia: float
    """Sum of squared distances to the nearest centre."""
    empty_clusters: int


def discretize(x: Matrix, clusters: int, seed: int = 0) -> Int[Tensor, " token"]:
    r"""The cluster of each row, by mini-batch k-means.

    Batches of 10,240 rows; centres start at random rows from 500 clusters up and by k-means++ below. One pass over
    the data, at least 20 batches. The same seed gives the same labels. Where the rows have fewer distinct
    values than `clusters`, some clusters stay empty and their labels unused.

    Args:
        x: (token, width), float32 or float64; computed in float32.
        clusters: Number of clusters, at most the number of rows.
        seed: Of the start and of the batches.

    Returns:
        Labels 0..clusters−1, int64.

    Raises:
        UserError: `clusters` is below 1 or above the number of rows, or `x` is not finite.

    Source: [@sculley2010].

    >>> discretize(torch.tensor([[0.0], [0.1], [9.0], [9.1]]), clusters=2).bincount()
    tensor([2, 2])
    """
    return torch.from_numpy(cluster(x, clusters, seed).labels)


def cluster(x: Matrix, clusters: int, seed: int = 0) -> Clustering:
    """`discretize`, with what is worth reporting of the clustering."""
    rows = as_view(x, "x", torch.float32).numpy()
    if not 1 <= clusters <= len(rows):
        raise UserError(
            f"clusters must lie in 1..{len(rows)}, the number of rows. Got {clusters}. "
            "Use fewer clusters or more tokens."
        )
    epochs = max(1, -(-_MIN_STEPS * min(BATCH_SIZE, len(rows)) // len(rows)))
    kmeans = MiniBatchKMeans(
        clusters,
        init="random" if clusters >= _RANDOM_START_FROM else "k-means++",
        batch_size=BATCH_SIZE,
        max_iter=epochs,
        n_init=1,
        random_state=seed,
    ).fit(rows)
    labels = kmeans.labels_.astype(np.int64)
    return Clustering(labels, float(kmeans.inertia_), clusters - len(np.unique(labels)))
