"""What a supervised task is: labelled parts, and an objective that a model with a head for it is trained on."""

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
"""What is asked: a class or a number of a text or a pair of texts, a tag of each word, where in a passage the answer
stands, which of some answers is right, a text to write."""
SHAPES: tuple[Shape, ...] = ("classification", "regression", "tagging", "span", "choice", "generation")
"""All shapes of tasks, as `--shape` takes them."""


_LONGEST_NAME = 100


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TaskData:
    """A task's labelled parts. Learning rates are chosen on `dev`; `test` is looked at once."""

    name: str
    shape: Shape
    train: Corpus
    dev: Corpus
    test: Corpus
    labels: tuple[str, ...] = ()
    """Classes or tags, those of `train` first seen first; of shapes without classes none."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Examples that could not be asked, by reason: counts, never silent."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the task's class that go with these data, for `make_task`."""


def check_task_name(name: str) -> None:
    """A task's name becomes a folder under the run's, such as `acl-arc` or `classify/acl-arc`.

    Raises:
        UserError: It is none, or leads elsewhere.
    """
    parts = name.split("/")
    if len(name) > _LONGEST_NAME or not {"", ".", ".."}.isdisjoint(parts) or any(s == "\\" or s < " " for s in name):
        raise UserError(
            f"The name of a task must have 1 to {_LONGEST_NAME} characters and stay in the run's folder. "
            f"Got {as_written(name)}. Choose another (--task)."
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Predictions:
    """What a model said about the examples of one part, in the order of its corpus."""

    said: tuple[str, ...]
    """As text: a label, a number, tags joined by blanks, the answer (empty: there is none), the text written."""
    wanted: tuple[str, ...]
    """Likewise, what is right; where several answers are, the first."""
    values: Float[np.ndarray, " example"]
    """The number of a regression; else the probability (or, of a span or a text, the score) of what was said."""
    alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()
    """Of each example the n best answers with their scores, where the shape has such."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Score:
    """One metric on one part, with its interval over examples."""

    metric: str
    row: Mapping[str, Any]
    """Columns of `results.estimate_columns`: value, low, high, baseline (the best guess without a model), count,
    replicates (paired between models scored on the same examples)."""


class AbstractTask(AbstractObjective):
    """A task as an objective: what `training.train` trains a model with a head for it on.

    It changes no example: `corrupt` only makes arrays of it. Layout and family are of pretraining; the model is given.
    """

    layout: ClassVar[Layout] = "encoder"
    family: ClassVar[Family] = "discriminate"
    shape: ClassVar[Shape]
    head: ClassVar[str]
    """The Auto class of transformers that loads a tuned model: "AutoModelForSequenceClassification"."""
    task: str
    """Name of the task, for tables."""
    labels: tuple[str, ...]

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """The example as it is: token ids, what is asked, and of a pair the segments, under their names in a batch."""
        tokens = example.text
        return Corrupted(arrays={"input_ids": tokens, **example.labels}, selected=np.zeros(len(tokens), dtype=bool))

    @abstractmethod
    def rows(self, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_length: int) -> ExampleRows:
        """Examples of a part as token ids; row i is row i of the corpus unless the rows say otherwise (windows).

        Raises:
            UserError: A label that training lacks, a span that no tokens cover, and the like.
        """

    @abstractmethod
    def example_losses(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        """Loss of each example of a batch, nats (of a regression squared error), differentiable."""

    @abstractmethod
    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """What the model, in evaluation mode, says about every example of the part."""

    @abstractmethod
    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """The task's metrics, the main one first; `train` is what a guess without reading may know."""

    def settled(self, module: PreTrainedModel) -> "AbstractTask":
        """Make of a trained model, in place, what is saved: one that answers as those who load it expect. Returns the
        task that it is then a model of; by default both stay as they are."""
        return self

    def right(self, predictions: Predictions, corpus: Corpus) -> Bool[np.ndarray, " example"]:
        """Which answers count as right, by default those that are what was wanted, to the letter; of numbers none."""
        pairs = zip(predictions.said, predictions.wanted, strict=True)
        return np.array([said == wanted for said, wanted in pairs], dtype=bool)
