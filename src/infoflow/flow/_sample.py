"""The token sample: individual states of a bounded set of occurrences, the same for every model and order of batches.

Which occurrences are sampled follows from tokens alone, before any model runs: each has the hash of
(seed, sentence id, word), and the lowest hashes are taken. So a smaller sample is the beginning of a larger one,
and neither batch order nor the number of shards or processes matters. The states then fill a memory-mapped file.
"""

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from infoflow.foundation import block_of

from ._activations import Regime

NO_LABEL = -100
STATES = "states.npy"
_OCCURRENCES, _FREQUENCIES, _FACTS = "occurrences.npz", "frequencies.npy", "facts.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRequest:
    """What a measure asks of the sample; the runner serves all requests from one sample."""

    occurrences: int = 20_000
    """At most so many tokens; fewer where the corpus or the byte budget is smaller."""
    top_types: int | None = None
    """Regime "training" draws the replacements among this many most frequent types."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Occurrences:
    """What is known of each sampled token without a model: columns of equal length, in sampling order."""

    sentence: np.ndarray  # int64, the corpus's stable sentence id
    row: np.ndarray  # int64, row of the encoded corpus
    position: np.ndarray  # int64, index among the row's tokens, special tokens included
    token: np.ndarray  # int64, input id as the model reads it (after corruption)
    label: np.ndarray  # int64, id to predict there, −100 where nothing is predicted
    previous: np.ndarray  # int64, id of the token before it, uncorrupted; −1 at the start or after a special token
    next: np.ndarray  # int64, id of the token after it, uncorrupted; −1 at the end or before a special token
    word: np.ndarray  # int64, index of its word
    draw: np.ndarray  # int64, which pass over the corpus (training regime repeats with new noise)

    def __len__(self) -> int:
        return len(self.sentence)

    def take(self, index: np.ndarray) -> "Occurrences":
        return replace(self, **{field.name: getattr(self, field.name)[index] for field in fields(self)})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SampleFacts:
    """What measures need to know beside the states."""

    model: str
    stack: str  # "encoder" or "decoder"
    regime: Regime
    task: str  # the model's task, see `Model.task`
    seed: int
    tokenizer: str  # digest: equal for models that read the same tokens
    frequencies: np.ndarray  # (vocabulary,) int64: how often each token id occurs in the corpus


class TokenSample:
    """Occurrences and their states in every layer of one stack, memory-mapped on disk."""

    def __init__(
        self,
        occurrences: Occurrences,
        states: np.ndarray,  # (L+1, m, D) float32, m ≥ n
        facts: SampleFacts,
        rows: np.ndarray | None = None,  # (n,) which of the m rows of `states` are this sample's; default all
    ) -> None:
        self.occurrences, self.facts = occurrences, facts
        self._states, self._rows = states, np.arange(len(occurrences)) if rows is None else rows

    def __len__(self) -> int:
        return len(self.occurrences)

    @property
    def num_states(self) -> int:
        """Number of layers of states: L+1 with the embeddings."""
        return len(self._states)

    @property
    def width(self) -> int:
        return self._states.shape[2]

    @property
    def blocks(self) -> np.ndarray:
        """(n,) bootstrap block of each occurrence."""
        return block_of(self.occurrences.sentence)

    def states(self, layer: int) -> np.ndarray:
        """(n, D) float32 states of one layer, 0..L."""
        return np.asarray(self._states[layer][self._rows])

    def take(self, index: np.ndarray) -> "TokenSample":
        """The sample of the chosen rows (indices or a mask); states stay on disk until read."""
        return TokenSample(self.occurrences.take(index), self._states, self.facts, self._rows[index])

    def save(self, folder: Path) -> None:
        """Write what is not on disk yet beside the states, so that `load` finds the whole sample in `folder`."""
        np.savez(folder / _OCCURRENCES, **{f.name: getattr(self.occurrences, f.name) for f in fields(Occurrences)})
        np.save(folder / _FREQUENCIES, self.facts.frequencies)
        plain = {f.name: getattr(self.facts, f.name) for f in fields(SampleFacts) if f.name != "frequencies"}
        (folder / _FACTS).write_text(json.dumps(plain))

    @classmethod
    def load(cls, folder: Path) -> "TokenSample":
        """A sample that `save` completed; states stay on disk until read."""
        with np.load(folder / _OCCURRENCES, allow_pickle=False) as columns:
            occurrences = Occurrences(**columns)
        facts = SampleFacts(**json.loads((folder / _FACTS).read_text()), frequencies=np.load(folder / _FREQUENCIES))
        return cls(occurrences, np.load(folder / STATES, mmap_mode="r"), facts)

    def first(self, num: int) -> "TokenSample":
        """The first `num` occurrences: what a smaller request would have drawn."""
        return self if num >= len(self) else self.take(np.arange(num))
