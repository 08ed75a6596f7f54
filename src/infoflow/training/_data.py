"""Training data: token ids of sentences, and of their translations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from infoflow.foundation import UserError, stream
from infoflow.objectives import AbstractObjective, Batch, Example, Noise, Vocabulary


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


@runtime_checkable
class ExampleRows(TokenRows, Protocol):
    """Rows that are more than a sentence and its translation: windows of a document, pairs, labelled text."""

    def example(self, index: int) -> Example:
        """The input of an objective; `lengths` and `row` cover all its tokens."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainingData:
    """Encoded sentences with their vocabularies, and the tokenizers to save with the model."""

    source: TokenRows  # or `ExampleRows`
    vocabulary: Vocabulary
    target: TokenRows | None = None  # translations, row by row
    target_vocabulary: Vocabulary | None = None
    tokenizer: Any = None  # saved with the model if given
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
        """The corrupted batch of `rows`.

        Each example's noise, for its corruption and for a stochastic loss (`Batch.noise`), is keyed only by (`noise`,
        epoch, sentence id).
        """
        ids = [int(self.source.sentence_ids[row]) for row in rows.tolist()]
        high = objective.noise_epoch(epoch) << 32
        corrupted = [
            objective.corrupt(example, stream(*noise, high | id), self.vocabulary)
            for id, example in zip(ids, self._examples(objective, rows), strict=True)
        ]
        # Noisy copies are fixed per text, but the loss draws anew in every epoch.
        drawn = Noise(tuple((*noise, epoch << 32 | id) for id in ids))
        target = self.target_vocabulary if objective.needs_translation else None  # else both sides are of one text
        return objective.collate(corrupted, self.vocabulary, target, drawn)

    def _examples(self, objective: AbstractObjective, rows: np.ndarray) -> Iterator[Example]:
        target = self.target if objective.needs_translation else None
        if isinstance(self.source, ExampleRows):
            yield from map(self.source.example, rows.tolist())
            return
        for row in rows.tolist():
            text = np.asarray(self.source.row(row), dtype=np.int64)
            translation = None if target is None else np.asarray(target.row(row), dtype=np.int64)
            yield Example(texts=(text,), translation=translation)
