"""Interface of pretraining objectives: the model that they train, the corruption, the loss."""

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
"""Unit of an example: a sentence; consecutive sentences of a document; two segments of documents."""

Writes = Literal["translation", "text", "part"]
"""Target of a decoder with an encoder: the translation, the original text, or the removed part of the text."""

Family = Literal["predict next", "fill in", "translate", "discriminate", "reconstruct", "static"]
"""Task of an objective.

The next token; hidden tokens; another language; which of two is true; the corrupted text; one vector per word.
"""


class AbstractObjective(ABC):
    """A pretraining objective.

    `corrupt` depends only on (example, generator, vocabulary): the training loop passes a generator keyed by (seed,
    epoch, sentence), so noise does not depend on the order of calls. `loss` returns a sum and a count per term, because
    the mean is taken over a whole update, which may be split into micro-batches and processes.
    """

    name: ClassVar[str]
    layout: ClassVar[Layout]
    """Stacks of the model that it trains."""
    family: ClassVar[Family]
    """Objectives of one family share a hue in figures."""
    needs_translation: ClassVar[bool] = False
    writes: ClassVar[Writes] = "part"
    """Target of a decoder with an encoder, which determines the decoder's input in measures."""
    reads: ClassVar[Reads] = "sentence"
    """Unit of an example; all but sentences need a corpus with documents."""
    teacher: str = ""
    """The objective of the plan whose trained model is the teacher; "": none."""
    needs_counts: ClassVar[bool] = False
    """Whether noise samples tokens by their frequency in the training text (`Vocabulary.counts`)."""
    draws: ClassVar[bool] = False
    """Whether the loss draws random numbers: every example then needs its own noise."""
    uses_all_parameters: ClassVar[bool] = True
    """Whether every forward pass uses every trained parameter."""
    compares_examples: ClassVar[bool] = False
    """Whether the loss compares the examples of an update: each process then computes all of it."""
    term_weights: ClassVar[dict[str, float]]
    """Weight of each term's mean in the minimised loss; the first term belongs to the measured model."""
    fields: ClassVar[Mapping[str, Field]] = SENTENCE_FIELDS
    """Padding of the arrays from `corrupt`, by name."""
    metrics: ClassVar[tuple[Metric, ...]] = (LOSS,)
    """Scores on held-out text that decide whether the task was learned; all must pass."""

    @property
    def predicted_share(self) -> float:
        """Approximate share of the text's tokens that it predicts."""
        return 1.0

    @property
    def can_write(self) -> bool:
        """Whether its decoder writes all or part of the text, given only the encoder's input."""
        return (
            self.layout == "encoder-decoder"
            and not self.needs_translation
            and self.fields.keys() == SENTENCE_FIELDS.keys()
        )

    @property
    def needs_mask(self) -> bool:
        """Whether its noise uses mask tokens, which the tokenizer must then have."""
        return False

    def num_sentinels(self, longest: int) -> int:
        """Maximum number of sentinel tokens for a text of `longest` tokens; 0 if its noise uses none."""
        return 0

    @abstractmethod
    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Turn one clean example into named arrays: inputs, labels, and other inputs of the loss."""

    def reads_instead(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Further input arrays with other tokens, int64 (token,), at the same positions."""
        return {"input_ids": inputs}

    def noise_epoch(self, epoch: int) -> int:
        """The epoch that keys the noise; an objective with a fixed number of noisy copies returns the copy's number."""
        return epoch

    def for_evaluation(self) -> "AbstractObjective":
        """The objective for evaluation on held-out sentences: without training-only noise."""
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
        """Number of items in the average of each loss term; known before the forward pass."""
        return dict.fromkeys(self.term_weights, batch.supervised_tokens)

    @abstractmethod
    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Sum (nats) and count of each loss term on one batch.

        `noise` is the batch's own (`batch.noise`), the only source of a loss's random numbers.
        """

    def on_text(self) -> "AbstractObjective":
        """The objective whose noise is measured on single texts; objectives on pairs return their single-text part."""
        return self.for_evaluation()

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The part of the trained module that is saved, loaded by the Auto classes and measured; default: all of it.

        An objective that trains several models holds them in one `PreTrainedModel`, as `EncoderDecoderModel` does.
        """
        return module

    def beside(self, module: PreTrainedModel) -> dict[str, PreTrainedModel]:
        """Other parts that are separate models, each saved in a subfolder of that name."""
        return {}

    @property
    def exports_a_part(self) -> bool:
        """Whether it trains more than the saved model."""
        return type(self).exported is not AbstractObjective.exported

    def guesses(self, batch: Batch, unigram: Float[np.ndarray, " token"]) -> dict[str, float]:
        """Sum of each term for a frequency baseline; `unigram` is -log p of each token id.

        By default every term predicts the tokens in `labels`.
        """
        labels = batch.labels[batch.labels != UNSUPERVISED].cpu().numpy()
        return dict.fromkeys(self.term_weights, float(unigram[labels].sum()))

    def answers(self, module: PreTrainedModel, batch: Batch, noise: Noise) -> dict[str, Answers]:
        """The model's answers to questions that do not predict tokens, by the name of the metric; empty by default."""
        return {}

    def weighted(self, means: Mapping[str, float]) -> float:
        """The minimised loss, from the mean of each term."""
        return sum(self.term_weights[name] * mean for name, mean in means.items())
