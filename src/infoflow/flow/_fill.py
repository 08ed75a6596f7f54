"""Writes the states of selected occurrences to a memory-mapped file, batch by batch."""

from pathlib import Path

import numpy as np
import torch

from infoflow.foundation import reserve_space

from ._activations import Activations
from ._reader import PaddedBatch
from ._sample import STATES, SampleFacts, TokenSample
from ._sample_columns import Occurrences
from ._tags import Tag


class SampleFiller:
    """Collects one stack's states for selected occurrences, in any order of batches."""

    def __init__(
        self,
        occurrences: Occurrences,
        facts: SampleFacts,
        tags: dict[str, Tag],
        folder: Path,
        num_states: int,
        width: int,
    ) -> None:
        self.occurrences, self.facts, self._tags = occurrences, facts, tags
        self._folder = folder
        self.filled = np.zeros(len(occurrences), dtype=bool)
        folder.mkdir(parents=True, exist_ok=True)
        shape = (num_states, len(occurrences), width)
        self._states = np.lib.format.open_memmap(folder / STATES, mode="w+", dtype=np.float32, shape=shape)
        reserve_space(folder / STATES)
        order = np.lexsort((occurrences.row, occurrences.draw))
        self._order, self._rows, self._draws = order, occurrences.row[order], occurrences.draw[order]

    def update(self, batch: PaddedBatch, activations: Activations, draw: int) -> None:
        """Store the sampled states of a batch."""
        index, sentence = self._find(batch.rows, draw)
        if len(index) == 0:
            return
        position = torch.from_numpy(self.occurrences.position[index])
        at = torch.from_numpy(sentence)
        for layer, states in enumerate(activations.hidden[self.facts.stack]):
            picked = states[at, position].float().cpu().numpy()
            self._states[layer, index] = picked
        self.filled[index] = True

    def _find(self, rows: np.ndarray, draw: int) -> tuple[np.ndarray, np.ndarray]:
        """Sample indices whose sentence is in the batch, and their positions in the batch."""
        start = np.searchsorted(self._draws, draw, side="left")
        stop = np.searchsorted(self._draws, draw, side="right")
        of_draw = self._rows[start:stop]
        low = start + np.searchsorted(of_draw, rows, side="left")
        high = start + np.searchsorted(of_draw, rows, side="right")
        index = np.concatenate([self._order[a:b] for a, b in zip(low, high, strict=True)])
        return index, np.repeat(np.arange(len(rows)), high - low)

    def state_dict(self) -> dict[str, np.ndarray]:
        """The states that this shard has filled."""
        index = np.flatnonzero(self.filled)
        return {"index": index, "states": np.asarray(self._states[:, index])}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Add the states that another shard has filled."""
        self._states[:, state["index"]] = state["states"]
        self.filled[state["index"]] = True

    def sample(self) -> TokenSample:
        """The complete sample."""
        assert self.filled.all(), f"{(~self.filled).sum()} sampled occurrences were never seen"
        self._states.flush()
        sample = TokenSample(self.occurrences, self._states, self.facts, tags=self._tags)
        sample.save(self._folder)
        return sample
