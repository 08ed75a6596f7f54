"""Supervised tasks: labelled parts, and an objective for a model with a task head."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from infoflow.architectures import Layout
from infoflow.corpus import Corpus, Vocabulary
from infoflow.foundation import UserError, as_written
from infoflow.objectives import AbstractObjective, Batch, Corrupted, Example, Family
from infoflow.training import ExampleRows

Shape = Literal["classification", "regression", "tagging", "span", "choice", "generation"]
"""The label: a class or number of a text or pair, a tag per word, an answer span, a choice, or a text to write."""
SHAPES: tuple[Shape, ...] = ("classification", "regression", "tagging", "span", "choice", "generation")
"""All task shapes, as in `--shape`."""


_LONGEST_NAME = 100


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TaskData:
    """A task's labelled parts. Learning rates are chosen on `dev`; `test` is used once."""

    name: str
    shape: Shape
    train: Corpus
    dev: Corpus
    test: Corpus
    labels: tuple[str, ...] = ()
    """Classes or tags, in order of first occurrence in `train`; empty for shapes without classes."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of unusable examples, by reason."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the task's class for this data, for `make_task`."""


def check_task_name(name: str) -> None:
    """A task's name becomes a folder under the run's, such as `acl-arc` or `classify/acl-arc`.

    Raises:
        UserError: It is not a folder name, or leads elsewhere.
    """
    parts = name.split("/")
    if len(name) > _LONGEST_NAME or not {"", ".", ".."}.isdisjoint(parts) or any(s == "\\" or s < " " for s in name):
        raise UserError(
            f"The name of a task must have 1 to {_LONGEST_NAME} characters and be a valid folder name. "
            f"Got {as_written(name)}. Choose another (--task)."
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Predictions:
    """A model's predictions for the examples of one part, in the order of its corpus."""

    said: tuple[str, ...]
    """As text: a label, a number, tags joined by blanks, the answer (empty: no answer), the generated text."""
    wanted: tuple[str, ...]
    """The references in the same form; if there are several, the first."""
    values: Float[np.ndarray, " example"]
    """The number of a regression; else the probability (for a span or a text, the score) of the prediction."""
    alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()
    """The n best answers of each example with their scores, if the shape has such."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Score:
    """One metric on one part, with its interval over examples."""

    metric: str
    row: Mapping[str, Any]
    """Columns of `results.estimate_columns`: value, low, high, baseline (the best guess without a model), count,
    replicates.

    Replicates are paired between models scored on the same examples.
    """


class AbstractTask(AbstractObjective):
    """A task as a training objective for `training.train` and a model with a task head.

    It does not change examples: `corrupt` only converts them to arrays. Layout and family matter for pretraining only.
    """

    layout: ClassVar[Layout] = "encoder"
    family: ClassVar[Family] = "discriminate"
    shape: ClassVar[Shape]
    head: ClassVar[str]
    """The Auto class of transformers that loads a tuned model, such as "AutoModelForSequenceClassification"."""
    task: str
    """Name of the task, for tables."""
    labels: tuple[str, ...]

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """The example as it is: token ids, target, and segments of a pair, under their names in a batch."""
        tokens = example.text
        return Corrupted(arrays={"input_ids": tokens, **example.labels}, selected=np.zeros(len(tokens), dtype=bool))

    @abstractmethod
    def rows(self, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_length: int) -> ExampleRows:
        """Examples of a part as token ids; row i is row i of the corpus unless the rows say otherwise (windows).

        Raises:
            UserError: A label does not occur in training, no token covers a span, and similar.
        """

    @abstractmethod
    def example_losses(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        """Loss of each example of a batch in nats (squared error for a regression), differentiable."""

    @abstractmethod
    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The predictions of the model, in evaluation mode, for every example of the part."""

    @abstractmethod
    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """The task's metrics, the main one first; `train` is what the baseline guess may use."""

    def settled(self, module: PreTrainedModel) -> "AbstractTask":
        """Convert a trained model, in place, to the form that users of the saved model expect.

        Returns the task of the converted model; default: both stay unchanged.
        """
        return self

    def right(self, predictions: Predictions, corpus: Corpus) -> Bool[np.ndarray, " example"]:
        """Which answers count as right: by default exact matches; none for numbers."""
        pairs = zip(predictions.said, predictions.wanted, strict=True)
        return np.array([said == wanted for said, wanted in pairs], dtype=bool)
