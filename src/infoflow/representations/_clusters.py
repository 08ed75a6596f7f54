"""Clusters of states: mini-batch k-means, and the centres of every layer, fitted before the measuring pass."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt16
from torch import Tensor

from infoflow.flow import PassOptions, Reader, Regime, Stream, forward
from infoflow.foundation import UserError, current_display, hash64_array, stream
from infoflow.models import argmin, tap

from ._views import Matrix, States, as_view

_BATCH = 10_240
"""Rows per batch. On 100,000 states (2,000 Zipfian types) 1,000 clusters carry 3.0 nats; with 1,024 rows, only 2.4."""
_STEPS = 20
"""Minimum number of steps. With few rows, one pass is a step or two, which hardly moves the centres."""
_SMALL = 0.05
"""Clusters below this share of the mean size are moved. On these states 0.02 and 0.05 are best; 0.2 adds 2% inertia."""
_RECENT, _FALL = 5, 0.001
"""Number of steps to compare with as many before them, and the relative fall in distance needed to continue."""
_ROUNDING = 1e-5
"""Squared distances below this share of the squared norm (from the mean) are rounding error and count as 0."""
_AT_ONCE = 1_024  # rows per block of distances, which take 40 MB for 10,000 centres


class Clustering(NamedTuple):
    labels: Int[Tensor, " token"]
    centres: Float[Tensor, "cluster width"]


def discretize(x: Matrix, clusters: int, seed: int = 0) -> Int[Tensor, " token"]:
    r"""The cluster of each row, by mini-batch k-means.

    Centres start at rows far apart (greedy k-means++, on a sample of 10,240 rows, or 1.5 per cluster if that is more).
    Then 20 batches of 10,240 rows are read, or as many as it takes to read every row once; if there are fewer rows,
    each batch has all of them. A batch moves a centre $c$ of weight $w$ towards the mean of its rows:

    $$ w \leftarrow (1 - b/n)\, w + m, \qquad c \leftarrow c + \frac{m}{w}\, (\bar{x} - c) $$

    | symbol          | meaning                                                 |
    |-----------------|---------------------------------------------------------|
    | $n$, $b$        | rows, and rows of a batch                               |
    | $m$, $\bar{x}$  | rows of the batch nearest to the centre, and their mean |

    Centres are thus means of about the last $n$ rows read, and for $b = n$ this is Lloyd's algorithm. During the first
    half of the batches, clusters with less than a twentieth of the mean weight are moved to rows of the batch, drawn in
    proportion to their squared distance from their centre. The second half ends early if squared distances fall by less
    than 0.1% in 5 batches.

    The same seed gives the same labels on a CPU. A GPU adds numbers in varying order, so its centres differ by
    rounding. If the rows have fewer distinct values than `clusters`, some labels are not used.

    Args:
        x: (token, width), float32 or float64; computed in float32.
        clusters: Number of clusters, at most the number of rows.
        seed: Seeds the start and the batches.

    Returns:
        Labels 0..clusters−1, int64.

    Raises:
        UserError: `clusters` is below 1 or above the number of rows, or `x` is not finite.

    Source: [@sculley2010], who use the means of all rows read; initialisation from [@arthur2007].

    >>> discretize(torch.tensor([[0.0], [0.1], [9.0], [9.1]]), clusters=2).bincount()
    tensor([2, 2])
    """
    return cluster(as_view(x, "x", torch.float32), clusters, seed).labels


def cluster(rows: States, clusters: int, seed: int = 0) -> Clustering:
    """`discretize` on the device of `rows`; also returns the centres, to which `nearest` can assign further states."""
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


def _batches(rows: States, size: int, steps: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Endless batches in random order; each has all rows if they fit into one batch."""
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if size < len(rows) and len(order) < size:
            order = torch.cat([order, torch.from_numpy(rng.permutation(len(rows)))])
        yield rows if size == len(rows) else rows[order[:size].to(rows.device)]
        order = order[size:]


class Nearest(NamedTuple):
    labels: Int[Tensor, " token"]
    squares: Float[Tensor, " token"]  # squared distance to that centre


def nearest(rows: States, centres: Float[Tensor, "cluster width"]) -> Nearest:
    """The centre nearest to each row; ties go to the first.

    Rows are measured relative to the mean of the centres; far from the origin, float32 is too inaccurate for distances.
    """
    middle = centres.mean(0)
    centred = centres - middle
    norms = centred.square().sum(1)
    labels = [argmin(torch.addmm(norms, part - middle, centred.mT, alpha=-2)) for part in rows.split(_AT_ONCE)]
    parts = zip(rows.split(_AT_ONCE), labels, strict=True)
    squares = [(part - centres[label]).square().sum(1) for part, label in parts]
    return Nearest(torch.cat(labels), torch.cat(squares))


def _far_apart(x: States, num: int, rng: np.random.Generator) -> Float[Tensor, "cluster width"]:
    """`num` rows of x, far apart: each is the one of a few random rows that leaves the smallest total distance.

    With Zipf's law, random initial rows would put most centres on the most frequent tokens; on the states described at
    `_BATCH` they give 5% more inertia.
    """
    trials = 2 + int(math.log(num)) + 500 // num  # more for few centres, or they may miss a clump
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

    Each row gets an exponential variable with its weight as rate, and the rows with the smallest values are drawn.
    """
    waiting = torch.from_numpy(rng.standard_exponential(len(weights), dtype=np.float32)).to(weights.device)
    tiny = torch.finfo(torch.float32).tiny
    return (waiting / weights.clamp(min=tiny)).topk(min(num, len(weights)), largest=False).indices


ROWS_PER_CENTRE = 40  # states per centre for fitting a clustering
_FIT_BYTES = 1 << 30
"""Bytes of states held at a time. If all layers take more, the same sentences are read once per group of layers; if a
single layer takes more, its clusterings share states."""
_LEAST_AT_POSITION = 20
"""Minimum number of states for a position to have its own mean; with 2,500 sentences, nearly all positions do."""
_CHUNK = 1024  # sentences read between checks of whether there are enough states
FOLDS = 2

Kept = Callable[[Stream], Bool[Tensor, "sentence token"]]


def fold_of(sentence_ids: Int[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """The half of the corpus that a sentence belongs to, 0 or 1, by the hash of its text."""
    return (hash64_array(("cluster-fold",), sentence_ids) % np.uint64(FOLDS)).astype(np.int64)


def position_means(states: States, positions: Int[Tensor, " token"], num: int) -> Float[Tensor, "position width"]:
    """The mean state at each of `num` positions. Positions with few states share one mean, that of all their states (if
    there are none, of all states). The last row is this mean too, for positions from `num` on."""
    count = positions.bincount(minlength=num + 1)
    sums = torch.zeros((num + 1, states.shape[1]), dtype=torch.float64).index_add_(0, positions, states.double())
    rare = count < _LEAST_AT_POSITION
    shared = rare if bool(count[rare].any()) else torch.ones_like(rare)
    return torch.where(
        rare[:, None], sums[shared].sum(0) / count[shared].sum(), sums / count.clamp(min=1)[:, None]
    ).float()


@dataclass(frozen=True, slots=True, eq=False)
class StateClusters:
    """Centres of several clusterings of each layer of one stack.

    Clusterings 0, 2, ... are fitted to sentences of fold 0, the others to fold 1; each of them labels every state.
    Centres also fit the noise of their own states, so information is too high on their fold and too low on the other.
    """

    centres: Float[Tensor, "layer clustering cluster width"]
    inertia: Float[np.ndarray, " layer"]  # mean squared distance of the fitted states to their centre, over clusterings
    offsets: Float[Tensor, "layer clustering position width"] | None = None
    """`position_means` of the fitted states, which are subtracted first; None if nothing is subtracted."""

    def facts(self) -> dict[str, np.ndarray]:
        """Facts for the table. Counts may be added up only if their fingerprints (of the centres) are equal."""
        fitted = [self.centres, *([] if self.offsets is None else [self.offsets])]
        fingerprint = hashlib.sha256(b"".join(each.cpu().numpy().tobytes() for each in fitted)).digest()
        return {
            "fingerprint": np.frombuffer(fingerprint, dtype=np.uint8),
            "num_clusters": np.asarray(self.centres.shape[2]),
            "inertia": self.inertia,
        }

    def labels(
        self, layer: int, states: States, positions: Int[Tensor, " token"]
    ) -> UInt16[np.ndarray, "clustering token"]:
        """The cluster of each state, in every clustering of its layer."""
        centres, found = self.centres[layer], []
        for index, own in enumerate(centres):
            rows = states
            if self.offsets is not None:
                means = self.offsets[layer, index].to(states)
                rows = states - means[positions.clamp(max=len(means) - 1)]
            found.append(nearest(rows, own.to(states)).labels)
        return torch.stack(found).cpu().numpy().astype(np.uint16)


class _Fitted(NamedTuple):
    """States of one layer for fitting, with the fold and position of each."""

    states: Float[Tensor, "row width"]
    folds: Int[np.ndarray, " row"]
    positions: Int[Tensor, " row"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ClusterFit:
    """Runs k-means `clusterings` times on one stack's states, on alternating folds, with different rows and starts."""

    reader: Reader
    options: PassOptions
    stack: str
    regime: Regime
    kept: Kept
    clusters: int
    clusterings: int
    draws: int  # how often sentences can be read, each time with new masking noise
    positions: bool = True  # if False, the mean state at each position is subtracted first

    def run(self) -> StateClusters:
        """Read the chosen sentences and fit every layer."""
        stack = self.reader.model.anatomy.stack(self.stack)
        layers = range(len(stack.layers) + 1)
        group = max(1, _FIT_BYTES // (4 * stack.width * FOLDS * self._rows_per_fold))
        title = f"Clustering states of {self.reader.model.name}"
        fitted = []
        with current_display().progress(title, len(layers), "layers") as progress:
            for start in range(0, len(layers), group):
                for rows in self._states(layers[start : start + group]):
                    fitted.append(self._fit(rows))
                    progress.advance(1)
        centres, inertia, offsets = zip(*fitted, strict=True)
        return StateClusters(torch.stack(centres), np.array(inertia), None if self.positions else torch.stack(offsets))

    @property
    def _rows_per_fold(self) -> int:
        """Number of states to read per fold; if memory allows, enough for each clustering to use different ones."""
        most = _FIT_BYTES // (4 * self.reader.model.anatomy.stack(self.stack).width * FOLDS)
        return min(ROWS_PER_CENTRE * self.clusters * math.ceil(self.clusterings / FOLDS), max(most, self.clusters))

    def _fit(self, rows: _Fitted) -> tuple[Float[Tensor, "clustering cluster width"], float, Tensor]:
        """Centres of all clusterings of one layer, their inertia, and their offsets."""
        of_folds = [np.flatnonzero(rows.folds == fold) for fold in range(FOLDS)]
        if min(len(own) for own in of_folds) < 2:  # a corpus of a single long text
            of_folds = [np.arange(len(rows.folds))] * FOLDS
        clusters = min(self.clusters, *(len(own) for own in of_folds))
        centres, inertia, offsets = [], [], []
        num = int(rows.positions.max()) + 1
        for seed in range(self.clusterings):
            own = of_folds[seed % FOLDS]
            chosen = stream("cluster-rows", self.reader.seed, seed).permutation(len(own))
            at = torch.from_numpy(own[np.sort(chosen[: ROWS_PER_CENTRE * clusters])])
            states, means = rows.states[at], torch.zeros(0)
            if not self.positions:
                means = position_means(states, rows.positions[at], num)
                states -= means[rows.positions[at]]
            found = cluster(states, clusters, seed).centres
            inertia.append(float(nearest(states, found).squares.double().mean()))
            centres.append(found)
            offsets.append(means)
        return torch.stack(centres), float(np.mean(inertia)), torch.stack(offsets)

    def _states(self, layers: Sequence[int]) -> list[_Fitted]:
        """The chosen states of these layers, on the CPU."""
        held: list[list[Tensor]] = [[] for _ in layers]
        folds: list[np.ndarray] = []
        positions: list[Tensor] = []
        with torch.inference_mode(), tap(self.reader.model, hidden=True) as tapped:
            for draw, batches in self._chunks():
                for rows in batches:
                    batch = self.reader.padded(rows, self.regime, draw).to(self.reader.model.device)
                    forward(self.reader.model, batch)
                    kept = self.kept(batch.streams[self.stack])
                    positions.append(batch.streams[self.stack].position[kept].long().cpu())
                    of_sentences = fold_of(batch.sentence_ids)
                    folds.append(np.broadcast_to(of_sentences[:, None], kept.shape)[kept.cpu().numpy()])
                    for parts, layer in zip(held, layers, strict=True):
                        parts.append(tapped.hidden[self.stack][layer][kept].float().cpu())
                if np.bincount(np.concatenate(folds), minlength=FOLDS).min() >= self._rows_per_fold:
                    break
        return [_Fitted(torch.cat(parts), np.concatenate(folds), torch.cat(positions)) for parts in held]

    def _chunks(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        """Yield the draw and batches of similar length; each draw reads the whole corpus, in the order of a hash."""
        batches = self.reader.batches(self.options.tokens_per_batch)
        rows = np.concatenate(batches)
        ids = self.reader.corpus.content_ids[rows]
        rows = rows[np.argsort(hash64_array(("cluster-sentences", self.reader.seed), ids), kind="stable")]
        for draw in range(self.draws):
            for start in range(0, len(rows), _CHUNK):
                chosen = np.zeros(len(self.reader.corpus), dtype=bool)
                chunk = rows[start : start + _CHUNK]
                chosen[chunk if self.regime == "clean" else self.reader.replaced(chunk, draw)] = True
                parts = [batch[chosen[batch]] for batch in batches]
                yield draw, [part for part in parts if len(part)]
