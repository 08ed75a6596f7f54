"""What a run trains on: token ids of sentences, and of their translations."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from infoflow.foundation import UserError, stream
from infoflow.objectives import AbstractObjective, Batch, Vocabulary


@runtime_checkable
class TokenRows(Protocol):
    """Encoded sentences (`infoflow.corpus.Encoded` is one)."""

    @property
    def sentence_ids(self) -> np.ndarray:
        """Stable sentence ids, int64 (sentence,)."""
        ...

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sentence, specials included."""
        ...

    def row(self, index: int) -> np.ndarray:
        """Token ids of one sentence, specials included."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainingData:
    """Encoded sentences with their vocabularies, and the tokenizers to save beside the model."""

    source: TokenRows
    vocabulary: Vocabulary
    target: TokenRows | None = None  # translations, row by row
    target_vocabulary: Vocabulary | None = None
    tokenizer: Any = None  # saved beside the model if given
    target_tokenizer: Any = None

    def __post_init__(self) -> None:
        if len(self.source.lengths) == 0:
            raise UserError("Training needs at least one sentence. Got an empty corpus.")
        if self.target is not None and len(self.target.lengths) != len(self.source.lengths):
            raise UserError(
                "Source and target must have the same number of sentences. "
                f"Got {len(self.source.lengths)} and {len(self.target.lengths)}."
            )

    def batch(self, objective: AbstractObjective, rows: np.ndarray, noise: tuple[int | str, ...], epoch: int) -> Batch:
        """The corrupted batch of `rows`; each sentence's noise is keyed by (`noise`, epoch, sentence id) alone."""
        high = objective.noise_epoch(epoch) << 32
        target = self.target if objective.needs_translation else None
        examples = [
            objective.corrupt(
                np.asarray(self.source.row(row), dtype=np.int64),
                stream(*noise, high | int(self.source.sentence_ids[row])),
                self.vocabulary,
                None if target is None else np.asarray(target.row(row), dtype=np.int64),
            )
            for row in rows.tolist()
        ]
        return objective.collate(examples, self.vocabulary, self.target_vocabulary)
