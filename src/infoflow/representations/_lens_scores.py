"""Similarity of a layer's prediction to the model's own: divergence, agreement, loss."""

# R row (a token occurrence), V vocabulary

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import NO_LABEL
from infoflow.foundation import NUM_BLOCKS
from infoflow.models import Readout
from infoflow.results import ratio_estimate

from ._lens_states import LensStates
from ._lens_training import row_chunks
from ._tuned_lens import TunedLens

METRICS = ("kl", "agreement", "loss")


class Unigram:
    """A model's context-free prediction: the mean of its predictions, and the most frequent top token."""

    def __init__(self, read: Readout) -> None:
        self._read, self.positions = read, 0
        self._total = torch.zeros(read.vocabulary_size, dtype=torch.float64)
        self._wins = torch.zeros(read.vocabulary_size, dtype=torch.int64)

    def update(self, batch: LensStates) -> None:
        """Add some positions."""
        with torch.no_grad():
            for chunk in chunks(batch, self._read):
                shares = self._read(chunk.states[-1]).float().softmax(dim=-1)
                self._total += shares.sum(dim=0, dtype=torch.float64).cpu()
                self._wins += shares.argmax(dim=-1).bincount(minlength=len(self._wins)).cpu()
        self.positions += len(batch)

    @property
    def log_shares(self) -> Float[Tensor, " vocabulary"]:
        """Natural logarithms of the mean prediction."""
        return (self._total / self._total.sum()).log().float()

    @property
    def favourite(self) -> int:
        """The token that is most often the most likely; the lower id wins ties."""
        return int(self._wins.argmax())


class LensScores:
    """Sums per bootstrap block of every metric, for each lens and layer and for the control."""

    def __init__(self, lenses: dict[str, TunedLens | None], unigram: Unigram, read: Readout) -> None:
        self._lenses, self._read = lenses, read
        self._unigram, self._favourite = unigram.log_shares, unigram.favourite
        self._num_states = len(read.stack.layers) + 1
        shape = (NUM_BLOCKS, len(METRICS))
        self._sums = {name: np.zeros((self._num_states, *shape)) for name in lenses}
        self._control, self._counts = np.zeros(shape), np.zeros(shape)

    def update(self, batch: LensStates) -> None:
        """Add some positions."""
        with torch.no_grad():
            for chunk in chunks(batch, self._read):
                self._add(chunk)

    def _add(self, chunk: LensStates) -> None:
        final = self._read(chunk.states[-1]).float().log_softmax(dim=-1)
        target = _Target(log_shares=final, shares=final.exp(), labels=chunk.labels)
        blocks = chunk.blocks.cpu().numpy()
        self._counts += _per_block(target.counts(), blocks)
        control = self._unigram.to(final).expand_as(final)
        self._control += _per_block(target.scores(control, self._favourite), blocks)
        top = _per_block(target.scores(final), blocks)
        for name, lens in self._lenses.items():
            for layer in range(self._num_states - 1):
                states = chunk.states[layer] if lens is None else lens(chunk.states[layer], layer)
                scores = target.scores(self._read(states).float().log_softmax(dim=-1))
                self._sums[name][layer] += _per_block(scores, blocks)
            self._sums[name][-1] += top

    def rows(self) -> Iterator[dict]:
        """A row per lens, metric and layer, without metrics undefined at all positions."""
        for name, sums in self._sums.items():
            for index, metric in enumerate(METRICS):
                counts = self._counts[:, index]
                if not counts.any():
                    continue
                baseline = self._control[:, index].sum() / counts.sum()
                for layer in range(self._num_states):
                    scale = "share" if metric == "agreement" else "positive"
                    estimate = ratio_estimate(sums[layer, :, index], counts, float(baseline), scale)
                    yield {"layer": layer, "lens": name, "metric": metric, **estimate}


def chunks(batch: LensStates, read: Readout) -> Iterator[LensStates]:
    """The batch in pieces whose logits are small."""
    start = 0
    for states in row_chunks(batch.states, read):
        yield batch.take(slice(start, start + states.shape[1]))
        start += states.shape[1]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Target:
    """The model's own prediction at some positions, and the tokens to predict there."""

    log_shares: Float[Tensor, "row vocabulary"]
    shares: Float[Tensor, "row vocabulary"]
    labels: Tensor

    def counts(self) -> Tensor:
        """(R, 3): which metrics are defined at a position."""
        asked = (self.labels != NO_LABEL).double()
        return torch.stack([torch.ones_like(asked), torch.ones_like(asked), asked], dim=1)

    def scores(self, log_shares: Float[Tensor, "row vocabulary"], guess: int | None = None) -> Tensor:
        """(R, 3): KL(final || these), whether the top tokens agree, and minus the log-probability of the label."""
        divergence = torch.linalg.vecdot(self.shares, self.log_shares - log_shares)
        top = log_shares.argmax(dim=-1) if guess is None else guess
        agreement = self.log_shares.argmax(dim=-1) == top
        asked = self.labels != NO_LABEL
        label_log_shares = log_shares.gather(1, self.labels.clamp(min=0)[:, None])[:, 0]
        loss = torch.where(asked, -label_log_shares, 0.0)
        return torch.stack([divergence.double(), agreement.double(), loss.double()], dim=1)


def _per_block(values: Tensor, blocks: np.ndarray) -> np.ndarray:
    """(64, 3) sums of (R, 3) values."""
    sums = np.zeros((NUM_BLOCKS, values.shape[1]))
    np.add.at(sums, blocks, values.cpu().numpy())
    return sums
