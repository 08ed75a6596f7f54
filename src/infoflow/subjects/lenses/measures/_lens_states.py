"""The states that a lens reads: those of every layer, at positions with a prediction."""

# L+1 states (layers with the embeddings), R row (a token occurrence), D model width

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.corpus import length_batches
from infoflow.flow import NO_LABEL, Reader, check_finite, forward
from infoflow.foundation import UserError, hash64, hash64_array, stream
from infoflow.models import tap

Positions = Literal["predicted", "all"]

_GROUP_BYTES = 1 << 27  # bytes of states held at a time, and shuffled together
_MAX_DRAWS = 40  # passes over a small corpus before it counts as too small


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LensStates:
    """Occurrences of tokens with their states in all layers."""

    states: Float[Tensor, "layer row width"]
    labels: Int[Tensor, " row"]  # the token to predict there; NO_LABEL without a target
    blocks: Int[Tensor, " row"]  # bootstrap block of the sentence

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor | slice) -> "LensStates":
        return LensStates(states=self.states[:, index], labels=self.labels[index], blocks=self.blocks[index])


class LensReader:
    """Runs a model on chosen sentences and keeps the states at the positions where it predicts.

    A masked LM reads text that is corrupted as in its training (`PassOptions.corruption`); the noise depends only on
    (seed, draw, sentence).
    """

    def __init__(self, reader: Reader, positions: Positions, tokens_per_batch: int) -> None:
        self._reader, self._positions, self._tokens_per_batch = reader, positions, tokens_per_batch
        self._stack = reader.model.anatomy.predicts
        self._corrupts = positions == "predicted" and reader.model.task == "masked-lm"

    @property
    def _share(self) -> float:
        """The expected share of tokens at which there is a prediction."""
        return self._reader.predicted_share if self._corrupts else 1.0

    def halves(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on and rows to evaluate on (`share` of the distinct source sentences), each in random order."""
        corpus, seed = self._reader.corpus, self._reader.seed
        split = corpus.split(seed=hash64("lens-part", seed), validation=0.0, test=share, rule="source")
        assert split.test is not None
        rows = self._reader.rows
        order = np.argsort(hash64_array(("lens-order", seed), corpus.content_ids[rows]), kind="stable")
        held_out = np.isin(corpus.ids[rows], split.test.ids)[order]
        return rows[order][~held_out], rows[order][held_out]

    def read(self, rows: np.ndarray, draw: int = 0) -> Iterator[LensStates]:
        """The states of these sentences, batch by batch in order of length."""
        for batch in self._reader.even(rows, length_batches(self._reader.lengths(rows), self._tokens_per_batch)):
            yield self._run(rows[batch], draw)

    def expected(self, rows: np.ndarray) -> float:
        """Expected number of positions in these sentences."""
        return self._share * self._reader.num_tokens(rows) / len(self._reader.model.anatomy.stacks)

    def sentences(self, rows: np.ndarray, positions: int) -> np.ndarray:
        """The first rows whose expected number of positions reaches `positions`."""
        return next(self._groups(rows, positions))

    def shuffled(self, rows: np.ndarray, size: int, total: int) -> Iterator[LensStates]:
        """About `total` random positions of these sentences, `size` at a time.

        After the last sentence the first ones are read again, with new noise.
        """
        state_bytes = 4 * self._stack.width * (len(self._stack.layers) + 1)
        most = min(math.ceil(1.05 * total), max(self._tokens_per_batch, _GROUP_BYTES // state_bytes))
        left, rest = total, None
        for draw in range(_MAX_DRAWS):
            for number, group in enumerate(self._groups(rows, most)):
                parts = [part for part in [rest, *self.read(group, draw)] if part]
                if not parts:
                    continue
                pool = _concatenate(parts)
                order = stream("lens-shuffle", self._reader.seed, draw, number).permutation(len(pool))
                pool = pool.take(torch.from_numpy(order).to(pool.labels.device))
                whole = len(pool) // size * size
                for start in range(0, whole, size):
                    yield pool.take(slice(start, start + size))
                rest, left = pool.take(slice(whole, None)), left - whole
                if left <= 0:
                    return
        raise UserError(
            f"{self._reader.corpus.name} has too few predictions of {self._reader.model.name} for a lens: "
            f"{total - left} of {total} in {_MAX_DRAWS} passes. Give more sentences, or train it on fewer tokens."
        )

    def _groups(self, rows: np.ndarray, positions: int) -> Iterator[np.ndarray]:
        """Groups of consecutive rows, each with this expected number of positions."""
        first, expected, lengths = 0, 0.0, self._reader.lengths(rows)
        for index in range(len(rows)):
            expected += self._share * lengths[index]
            if expected >= positions or index == len(rows) - 1:
                yield rows[first : index + 1]
                first, expected = index + 1, 0.0

    def _run(self, rows: np.ndarray, draw: int) -> LensStates:
        model, name = self._reader.model, self._stack.name
        batch = self._reader.padded(rows)
        if self._corrupts:
            batch = self._reader.corrupted_batch(batch, "lens-noise", self._reader.seed, draw)
        batch = batch.to(model.device)
        with torch.no_grad(), tap(model, hidden=True) as seen:
            forward(model, batch)
        check_finite(model, seen.hidden, batch)
        tokens = batch.streams[name]
        chosen = tokens.labels != NO_LABEL if self._positions == "predicted" else tokens.valid & tokens.counted
        sentence = chosen.nonzero()[:, 0]
        states = torch.stack([layer[chosen].float() for layer in seen.hidden[name]])
        return LensStates(
            states=states, labels=tokens.labels[chosen], blocks=batch.blocks.to(sentence.device)[sentence]
        )


def _concatenate(parts: list[LensStates]) -> LensStates:
    return LensStates(
        states=torch.cat([part.states for part in parts], dim=1),
        labels=torch.cat([part.labels for part in parts]),
        blocks=torch.cat([part.blocks for part in parts]),
    )
