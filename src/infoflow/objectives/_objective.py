"""What every pretraining objective answers: which model it trains, how it corrupts, what it is charged for."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary

from ._answers import Answers
from ._batch import SENTENCE_FIELDS, UNSUPERVISED, Batch, Corrupted, Field, collate
from ._example import Example
from ._loss import LossTerm
from ._metric import LOSS, Metric
from ._noise import Noise

Reads = Literal["sentence", "window", "pair"]
"""What an example is: a sentence; consecutive sentences of a document; two segments of documents."""

Writes = Literal["translation", "text", "part"]
"""Of a decoder beside an encoder: the translation, the whole text as it was, or what was taken out of the text."""

Family = Literal["predict next", "fill in", "translate", "discriminate", "reconstruct", "static"]
"""What an objective asks of a model: the next token; hidden tokens; another language; which of two is true; the text
that was damaged; one vector for a word."""


class AbstractObjective(ABC):
    """A pretraining objective.

    `corrupt` is a pure function of (example, generator, vocabulary): the training loop hands it a generator keyed by
    (seed, epoch, sentence), so noise depends on no order of calls. `loss` is a sum and a count per term, because the
    mean is taken over a whole update, which may be spread over micro-batches and processes.
    """

    name: ClassVar[str]
    layout: ClassVar[Layout]
    """Which stacks the model that it trains has."""
    family: ClassVar[Family]
    """Its relatives have its hue in figures."""
    needs_translation: ClassVar[bool] = False
    writes: ClassVar[Writes] = "part"
    """What a decoder beside an encoder writes: by it measures know what to let the decoder read."""
    reads: ClassVar[Reads] = "sentence"
    """What an example is; all but sentences need a corpus with documents."""
    teacher: str = ""
    """The objective of the plan whose trained model it learns from; "": none."""
    needs_counts: ClassVar[bool] = False
    """Whether noise draws tokens by their frequency in the training text (`Vocabulary.counts`)."""
    draws: ClassVar[bool] = False
    """Whether the loss draws random numbers: it then needs every example by itself, with its own noise."""
    uses_all_parameters: ClassVar[bool] = True
    """Whether every forward pass uses every parameter that is trained."""
    compares_examples: ClassVar[bool] = False
    """Whether the loss compares the examples of an update: each of several processes then computes it whole."""
    term_weights: ClassVar[dict[str, float]]
    """Weight of each term's mean in the loss that is minimised; the first is of the model that is measured."""
    fields: ClassVar[Mapping[str, Field]] = SENTENCE_FIELDS
    """How the arrays that `corrupt` returns are padded, by name."""
    metrics: ClassVar[tuple[Metric, ...]] = (LOSS,)
    """Scores on held-out text that tell whether the task was learned; all must say so."""

    @property
    def predicted_share(self) -> float:
        """About which share of the text's tokens it predicts."""
        return 1.0

    @property
    def can_write(self) -> bool:
        """Whether its decoder writes a part of the text, or all of it, after nothing but what its encoder reads."""
        return (
            self.layout == "encoder-decoder"
            and not self.needs_translation
            and self.fields.keys() == SENTENCE_FIELDS.keys()
        )

    @property
    def needs_mask(self) -> bool:
        """Whether its noise puts mask tokens into the text, which the tokenizer must then have."""
        return False

    def num_sentinels(self, longest: int) -> int:
        """How many sentinel tokens a text of `longest` tokens may need; 0 where its noise uses none."""
        return 0

    @abstractmethod
    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Turn one clean example into named arrays: inputs, labels, and what else the loss reads."""

    def reads_instead(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays by which the model, or its encoder, reads other tokens, int64 (token,), at the same places."""
        return {"input_ids": inputs}

    def noise_epoch(self, epoch: int) -> int:
        """The epoch that keys the noise; an objective with a fixed number of noisy copies returns the copy's number."""
        return epoch

    def for_evaluation(self) -> "AbstractObjective":
        """The objective that held-out sentences are scored by: without noise that belongs to training alone."""
        return self

    def collate(
        self,
        examples: Sequence[Corrupted],
        vocabulary: Vocabulary,
        target: Vocabulary | None = None,
        noise: Noise | None = None,
    ) -> Batch:
        """Pad examples into one batch; `target` is the vocabulary of the decoder's side if it has its own."""
        return collate(examples, self.fields, vocabulary, target, noise)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Items that each term of the loss will be averaged over; known before the forward pass."""
        return dict.fromkeys(self.term_weights, batch.supervised_tokens)

    @abstractmethod
    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Sum (nats) and count of each loss term on one batch.

        `noise` is the batch's own (`batch.noise`), for a loss that draws random numbers; it draws from nothing else.
        """

    def on_text(self) -> "AbstractObjective":
        """The objective whose noise a single text is measured with; one that reads pairs says which is left of it."""
        return self.for_evaluation()

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The part of the trained module that is saved, loaded by the Auto classes and measured: by default all of it.

        What trains several models together is one `PreTrainedModel` that holds them, as `EncoderDecoderModel` is.
        """
        return module

    def beside(self, module: PreTrainedModel) -> dict[str, PreTrainedModel]:
        """Other parts that are models by themselves, each saved in a folder of that name within the exported one's."""
        return {}

    @property
    def exports_a_part(self) -> bool:
        """Whether it trains more than what is saved as the model."""
        return type(self).exported is not AbstractObjective.exported

    def guesses(self, batch: Batch, unigram: Float[np.ndarray, " token"]) -> dict[str, float]:
        """Sum of each term for a guess that knows frequencies alone; `unigram` is -log p of each token id.

        By default every term asks for the tokens in `labels`.
        """
        labels = batch.labels[batch.labels != UNSUPERVISED].cpu().numpy()
        return dict.fromkeys(self.term_weights, float(unigram[labels].sum()))

    def answers(self, module: PreTrainedModel, batch: Batch, noise: Noise) -> dict[str, Answers]:
        """What the model answers to questions that have no tokens as answers, by the name of the metric; by default
        there are none."""
        return {}

    def weighted(self, means: Mapping[str, float]) -> float:
        """The loss that is minimised, from the mean of each term."""
        return sum(self.term_weights[name] * mean for name, mean in means.items())
