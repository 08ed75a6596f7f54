"""What every pretraining objective answers: which model it trains, how it corrupts, what it is charged for."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np
from transformers import PreTrainedModel

from ._batch import Batch, Corrupted, collate
from ._loss import LossTerm
from ._vocabulary import Vocabulary

Architecture = Literal["encoder", "decoder", "encoder-decoder"]


class AbstractObjective(ABC):
    """A pretraining objective.

    `corrupt` is a pure function of (tokens, generator, vocabulary): the training loop hands it a generator keyed by
    (seed, epoch, sentence), so noise depends on no order of calls. `loss` is a sum and a count per term, because the
    mean is taken over a whole update, which may be spread over micro-batches and processes.
    """

    name: ClassVar[str]
    architecture: ClassVar[Architecture]
    needs_translation: ClassVar[bool] = False
    term_weights: ClassVar[dict[str, float]]
    """Weight of each term's mean in the loss that is minimised."""

    @abstractmethod
    def corrupt(
        self,
        tokens: np.ndarray,
        generator: np.random.Generator,
        vocabulary: Vocabulary,
        target: np.ndarray | None = None,
    ) -> Corrupted:
        """Turn one clean sentence (specials included) into inputs and labels; `target` is its translation."""

    def noise_epoch(self, epoch: int) -> int:
        """The epoch that keys the noise; an objective with a fixed number of noisy copies returns the copy's number."""
        return epoch

    def for_evaluation(self) -> "AbstractObjective":
        """The objective that held-out sentences are scored by: without noise that belongs to training alone."""
        return self

    def collate(self, examples: list[Corrupted], vocabulary: Vocabulary, target: Vocabulary | None = None) -> Batch:
        """Pad examples into one batch; `target` is the vocabulary of the decoder's side if it has its own."""
        return collate(examples, vocabulary.pad, (target or vocabulary).pad)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Items that each term of the loss will be averaged over; known before the forward pass."""
        return dict.fromkeys(self.term_weights, batch.supervised_tokens)

    @abstractmethod
    def loss(self, module: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0) -> dict[str, LossTerm]:
        """Sum (nats) and count of each loss term on one batch."""
