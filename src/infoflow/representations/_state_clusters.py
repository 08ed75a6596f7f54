"""Cluster centres of a model's states in every layer, fitted before the pass on sentences chosen by hash."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt16
from torch import Tensor

from infoflow.flow import PassOptions, Reader, Regime, Stream, forward
from infoflow.foundation import current_display, hash64_array, stream
from infoflow.models import tap

from ._discretize import cluster, nearest

ROWS_PER_CENTRE, _LEAST_PER_CENTRE = 40, 20
"""States per centre for fitting a clustering; wide models use fewer before layers are read one after the other."""
_FIT_BYTES = 1 << 29
"""Bytes of states held at a time. If all layers take more, the same sentences are read once per group of layers."""
_CHUNK = 1024  # sentences between two looks at whether there are enough

Kept = Callable[[Stream], Bool[Tensor, "sentence token"]]


@dataclass(frozen=True, slots=True, eq=False)
class StateClusters:
    """Centres of several clusterings of each layer of one stack."""

    centres: Float[Tensor, "layer clustering cluster width"]
    inertia: Float[np.ndarray, " layer"]
    """Mean squared distance of the fitted states to their centre, over clusterings."""

    def facts(self) -> dict[str, np.ndarray]:
        """Data for tables; the fingerprint is equal for equal centres, whose counts may be added."""
        fingerprint = hashlib.sha256(self.centres.cpu().numpy().tobytes()).digest()
        return {
            "fingerprint": np.frombuffer(fingerprint, dtype=np.uint8),
            "num_clusters": np.asarray(self.centres.shape[2]),
            "inertia": self.inertia,
        }

    def labels(self, layer: int, states: Float[Tensor, "token width"]) -> UInt16[np.ndarray, "clustering token"]:
        """The cluster of each state, in every clustering of its layer."""
        found = [nearest(states, centres.to(states)).labels for centres in self.centres[layer]]
        return torch.stack(found).cpu().numpy().astype(np.uint16)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ClusterFit:
    """Fits `clusterings` k-means to one stack's states, each from its own rows and start."""

    reader: Reader
    options: PassOptions
    stack: str
    regime: Regime
    kept: Kept
    clusters: int
    clusterings: int
    draws: int
    """Number of available passes of training noise."""

    def run(self) -> StateClusters:
        """Read the chosen sentences and fit every layer."""
        layers = range(len(self.reader.model.anatomy.stack(self.stack).layers) + 1)
        group = max(1, _FIT_BYTES // (4 * self._width * self._num_rows))
        title = f"Clustering states of {self.reader.model.name}"
        fitted = []
        with current_display().progress(title, len(layers), "layers") as progress:
            for start in range(0, len(layers), group):
                for states in self._states(layers[start : start + group]):
                    fitted.append(self._fit(states))
                    progress.advance(1)
        return StateClusters(torch.stack([f[0] for f in fitted]), np.array([f[1] for f in fitted]))

    @property
    def _width(self) -> int:
        return self.reader.model.anatomy.stack(self.stack).width

    @property
    def _num_rows(self) -> int:
        """Number of states to fit: separate ones for each clustering, if they fit into memory."""
        states = len(self.reader.model.anatomy.stack(self.stack).layers) + 1
        affordable = _FIT_BYTES // (4 * self._width * states)
        most, least = ROWS_PER_CENTRE * self.clusters * self.clusterings, _LEAST_PER_CENTRE * self.clusters
        return int(np.clip(affordable, least, most))

    def _fit(self, states: Float[Tensor, "row width"]) -> tuple[Float[Tensor, "clustering cluster width"], float]:
        centres, inertia = [], []
        for seed in range(self.clusterings):
            chosen = stream("cluster-rows", self.reader.seed, seed).permutation(len(states))
            rows = states[torch.from_numpy(np.sort(chosen[: ROWS_PER_CENTRE * self.clusters]))]
            found = cluster(rows, min(self.clusters, len(rows)), seed).centres
            inertia.append(float(nearest(rows, found).squares.double().mean()))
            centres.append(found)
        return torch.stack(centres), float(np.mean(inertia))

    def _states(self, layers: Sequence[int]) -> list[Tensor]:
        """The chosen states of these layers, on the CPU."""
        held: list[list[Tensor]] = [[] for _ in layers]
        found = 0
        with torch.inference_mode(), tap(self.reader.model, hidden=True) as tapped:
            for draw, batches in self._chunks():
                for rows in batches:
                    batch = self.reader.padded(rows, self.regime, draw).to(self.reader.model.device)
                    forward(self.reader.model, batch)
                    kept = self.kept(batch.streams[self.stack])
                    found += int(kept.sum())
                    for parts, layer in zip(held, layers, strict=True):
                        parts.append(tapped.hidden[self.stack][layer][kept].float().cpu())
                if found >= self._num_rows:
                    break
        return [torch.cat(parts) for parts in held]

    def _chunks(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        """The corpus draw by draw, sentences by hash, in batches of similar length."""
        batches = self.reader.batches(self.options.tokens_per_batch)
        rows = np.concatenate(batches)
        ids = self.reader.corpus.content_ids[rows]
        rows = rows[np.argsort(hash64_array(("cluster-sentences", self.reader.seed), ids), kind="stable")]
        for draw in range(self.draws):
            for start in range(0, len(rows), _CHUNK):
                chosen = np.zeros(len(self.reader.corpus), dtype=bool)
                chosen[rows[start : start + _CHUNK]] = True
                parts = [batch[chosen[batch]] for batch in batches]
                yield draw, [part for part in parts if len(part)]
