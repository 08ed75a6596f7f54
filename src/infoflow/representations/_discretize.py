"""Mini-batch k-means: continuous states become labels."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError, stream

from ._views import Matrix, as_view

_BATCH = 10_240
"""On 100,000 states (2,000 types by Zipf's law, 64 positions) 1,000 clusters carry 3.0 nats; batches of 1,024, 2.4."""
_STEPS = 20
"""Minimum number of steps: few rows make one pass a step or two, which leaves the centres where they started."""
_SMALL = 0.05
"""Clusters below this share of the mean size move: on these states 0.02 and 0.05 leave least inertia, 0.2 2% more."""
_RECENT, _FALL = 5, 0.001
"""Steps that are compared with as many before them, and the least relative fall of the distances to go on."""
_ROUNDING = 1e-5
"""Squared distances below this share of the squared norm, measured from the mean, count as 0: equal rows round."""
_AT_ONCE = 1_024
"""Rows at once: for 10,000 centres, 40 MB of distances."""


class Clustering(NamedTuple):
    labels: Int[Tensor, " token"]
    centres: Float[Tensor, "cluster width"]


def discretize(x: Matrix, clusters: int, seed: int = 0) -> Int[Tensor, " token"]:
    r"""The cluster of each row, by mini-batch k-means.

    Centres start at rows far apart (greedy k-means++, on a sample of 10,240 rows, or 1.5 per cluster if that is more).
    Then 20 batches of 10,240 rows are read, or more until every row was read once; with fewer rows, each batch is all
    of them. A batch moves a centre $c$ of weight $w$ to the mean of the rows that it has seen recently:

    $$ w \leftarrow (1 - b/n)\, w + m, \qquad c \leftarrow c + \frac{m}{w}\, (\bar{x} - c) $$

    | symbol          | meaning                                                 |
    |-----------------|---------------------------------------------------------|
    | $n$, $b$        | rows, and rows of a batch                               |
    | $m$, $\bar{x}$  | rows of the batch nearest to the centre, and their mean |

    so centres are means of about the last $n$ rows read, and for $b = n$ this is Lloyd's algorithm. During the first
    half of the batches, clusters below a twentieth of the mean weight move to rows of the batch, drawn in proportion to
    their squared distance from their centre. The second half ends early if squared distances fall by less than 0.1% in
    5 batches.

    The same seed gives the same labels on a CPU; a GPU adds in any order, so its centres differ by rounding. If the
    rows have fewer distinct values than `clusters`, some clusters stay empty and their labels unused.

    Args:
        x: (token, width), float32 or float64; computed in float32.
        clusters: Number of clusters, at most the number of rows.
        seed: Seeds the start and the batches.

    Returns:
        Labels 0..clusters−1, int64.

    Raises:
        UserError: `clusters` is below 1 or above the number of rows, or `x` is not finite.

    Source: [@sculley2010], where centres are means of all rows read; initialisation by [@arthur2007].

    >>> discretize(torch.tensor([[0.0], [0.1], [9.0], [9.1]]), clusters=2).bincount()
    tensor([2, 2])
    """
    return cluster(as_view(x, "x", torch.float32), clusters, seed).labels


def cluster(rows: Float[Tensor, "token width"], clusters: int, seed: int = 0) -> Clustering:
    """`discretize`, on the device of `rows`, with the centres, to which further states can be assigned (`nearest`)."""
    num = len(rows)
    if not 1 <= clusters <= num:
        raise UserError(
            f"clusters must lie in 1..{num}, the number of rows. Got {clusters}. Use fewer clusters or more tokens."
        )
    rng = stream("k-means", seed)
    size = min(_BATCH, num)
    steps = max(_STEPS, math.ceil(num / size))
    sample = rng.permutation(num)[: max(_BATCH, clusters * 3 // 2)]
    centres = _far_apart(rows[torch.from_numpy(sample).to(rows.device)], clusters, rng)
    weights, distances = torch.zeros_like(centres[:, 0]), []
    for step, batch in enumerate(_batches(rows, size, steps, rng)):
        found = nearest(batch, centres)
        counts = found.labels.bincount(minlength=clusters).to(weights)
        sums = torch.zeros_like(centres).index_add_(0, found.labels, batch)
        weights = (1 - size / num) * weights + counts
        centres += (sums - counts[:, None] * centres) / weights.clamp(min=torch.finfo(weights.dtype).tiny)[:, None]
        distances.append(float(found.squares.mean()))
        if 2 * step < steps:
            small = (weights <= _SMALL * weights.mean()).nonzero()[: size // 2, 0]
            centres[small] = batch[_draw(found.squares, len(small), rng)]
            weights[small] = 0
        elif sum(distances[-_RECENT:]) >= (1 - _FALL) * sum(distances[-2 * _RECENT : -_RECENT]):
            break
    return Clustering(nearest(rows, centres).labels, centres)


def _batches(rows: Float[Tensor, "token width"], size: int, steps: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """All rows in random order, again and again; each batch all of them if they fit into one."""
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if size < len(rows) and len(order) < size:
            order = torch.cat([order, torch.from_numpy(rng.permutation(len(rows)))])
        yield rows if size == len(rows) else rows[order[:size].to(rows.device)]
        order = order[size:]


class Nearest(NamedTuple):
    labels: Int[Tensor, " token"]
    squares: Float[Tensor, " token"]
    """Squared distance to that centre."""


def nearest(rows: Float[Tensor, "token width"], centres: Float[Tensor, "cluster width"]) -> Nearest:
    """The centre nearest to each row; ties go to the first.

    Distances are measured from the mean of the centres: far from the origin, float32 would lose them.
    """
    middle = centres.mean(0)
    centred = centres - middle
    norms = centred.square().sum(1)
    labels = [torch.addmm(norms, part - middle, centred.mT, alpha=-2).argmin(1) for part in rows.split(_AT_ONCE)]
    parts = zip(rows.split(_AT_ONCE), labels, strict=True)
    squares = [(part - centres[label]).square().sum(1) for part, label in parts]
    return Nearest(torch.cat(labels), torch.cat(squares))


def _far_apart(x: Float[Tensor, "token width"], num: int, rng: np.random.Generator) -> Float[Tensor, "cluster width"]:
    """`num` rows of x, far apart: each is the one of a few drawn rows that leaves the least total distance.

    Under Zipf's law, random initial rows spend most centres on the most frequent tokens: on the states of `_BATCH` they
    leave 5% more inertia.
    """
    trials = 2 + int(math.log(num)) + 500 // num  # more for few centres, which then miss no clump
    centred = x - x.mean(0)
    squares = centred.square().sum(1)
    chosen, least = [], torch.full_like(squares, torch.inf)
    drawn = torch.from_numpy(rng.integers(len(x), size=1)).to(x.device)
    for _ in range(num):
        found = torch.addmm(squares, centred[drawn], centred.mT, alpha=-2).add_(squares[drawn, None])
        left = torch.minimum(found.where(found > _ROUNDING * squares, 0), least)
        best = left.sum(1).argmin()
        chosen.append(drawn[best])
        least = left[best]
        drawn = _draw(least, trials, rng)
    return x[torch.stack(chosen)]


def _draw(weights: Float[Tensor, " token"], num: int, rng: np.random.Generator) -> Int[Tensor, " row"]:
    """At most `num` distinct rows, in proportion to their weights; rows of weight 0 come last.

    The `num` smallest of exponential variables with these rates are such a draw.
    """
    waiting = torch.from_numpy(rng.standard_exponential(len(weights), dtype=np.float32)).to(weights.device)
    tiny = torch.finfo(torch.float32).tiny
    return (waiting / weights.clamp(min=tiny)).topk(min(num, len(weights)), largest=False).indices
