"""`make_task`: the training objective for the data of a task."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerBase
from infoflow.corpus import Corpus, Vocabulary
from infoflow.foundation import UserError
from infoflow.objectives import SENTENCE_FIELDS, AbstractObjective, Batch, Field, PrefixDecoder
from infoflow.training import ExampleRows

from ._choice_and_tagging import Choice, Tagging
from ._generation import Generation
from ._scoring import blocks_of, class_scores, number_scores, set_scores
from ._span_extraction import SpanExtraction
from ._task import (
    SEVERAL,
    AbstractTask,
    Predictions,
    Score,
    Shape,
    TaskData,
    chosen_labels,
    label_indices,
    label_numbers,
    label_sets,
    several,
    tag_column,
)
from ._task_rows import LABELS, SEGMENTS, TaskRows, answered, read_texts, task_logits

Main = Literal["accuracy", "macro_f1", "matthews", "micro_f1"]


def make_task(data: TaskData, *, trained: AbstractObjective | None = None, **options: Any) -> AbstractTask:
    """The objective for `training.train` on the task of `data`; `options` override the task's options.

    `trained` is the model's pretraining objective, if known (`training.trained_objective`); if it is prefix language
    modelling with one stack, sources get bidirectional attention.
    """
    if data.shape not in MAKERS:
        raise UserError(f"There is no task of the shape {data.shape}. Shapes: {', '.join(MAKERS)}.")
    both = {"two_sided": True} if reads_both_sides(data.shape, trained) else {}
    options = {**both, **data.options, **options}
    task: Any = MAKERS[data.shape](data)
    known = [field.name for field in fields(task)]
    if unknown := [option for option in options if option not in known]:
        raise UserError(
            f"A task of the shape {data.shape} has no option {unknown[0]}. Its options: {', '.join(known)}."
        )
    return replace(task, **options)


def reads_both_sides(shape: Shape, trained: AbstractObjective | None) -> bool:
    """Whether a single-stack model with the pretraining objective `trained` should see sources bidirectionally."""
    return shape == "generation" and isinstance(trained, PrefixDecoder)


class AbstractTextTask(AbstractTask):
    """A task on each text, or on pairs of texts if the corpus has the column `second`."""

    head: ClassVar[str] = "AutoModelForSequenceClassification"
    fields: ClassVar[Mapping[str, Field]] = {**SENTENCE_FIELDS, SEGMENTS: Field()}

    @abstractmethod
    def targets(self, corpus: Corpus) -> np.ndarray:
        """Targets in the form that the loss takes, one row per example."""

    def rows(self, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_length: int) -> ExampleRows:
        """Examples as token ids, with their targets; row i is row i of the corpus."""
        targets = self.targets(corpus)
        second = corpus.column("second") if "second" in corpus.columns else None
        tokens = read_texts(tokenizer, corpus.column("text"), second, max_length)
        return TaskRows.of(tokens, corpus, labels=targets)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Number of examples."""
        return {self.name: len(batch)}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Classification(AbstractTextTask):
    r"""The class of each text, or of each pair of texts if the corpus has the column `second`.

    The loss is $-\log p(y)$, with a softmax over the classes. With `multi`, an example may have several labels (`A|B`)
    or none: its loss is the sum of the binary cross-entropies of all labels, and a label is predicted if its
    probability is at least a half.
    """

    name: ClassVar[str] = "classification"
    shape: ClassVar[Shape] = "classification"
    term_weights: ClassVar[dict[str, float]] = {"classification": 1.0}

    task: str
    labels: tuple[str, ...]
    multi: bool = False
    main: Main = "accuracy"  # the metric for model selection; with several labels always micro_f1

    def targets(self, corpus: Corpus) -> np.ndarray:
        """The index of each example's class; with several labels, the mask of its labels, (example, label)."""
        return label_sets(corpus, self.labels) if self.multi else label_indices(corpus, self.labels)

    def example_losses(
        self, module: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0
    ) -> Float[Tensor, " example"]:
        """Cross-entropy of the classes."""
        logits, labels = task_logits(module, batch), batch[LABELS]
        if not self.multi:
            return F.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)
        wanted = labels.float() * (1 - label_smoothing) + label_smoothing / 2
        return F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").sum(1)

    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The most likely class of each example with its probability.

        With several labels: all labels with a probability of at least a half, and the probability of exactly this set
        if labels are independent.
        """
        probabilities = np.zeros((len(corpus), len(self.labels)))
        for places, batch in answered(self, module, rows, vocabulary, batch_tokens):
            logits = task_logits(module, batch)
            of_batch = logits.sigmoid() if self.multi else logits.softmax(-1)
            probabilities[places] = of_batch.cpu().numpy()
        wanted = tuple(label or "" for label in corpus.column("label"))
        return self._chosen(probabilities, wanted) if self.multi else self._likeliest(probabilities, wanted)

    def _likeliest(self, probabilities: np.ndarray, wanted: tuple[str, ...]) -> Predictions:
        said = tuple(self.labels[best] for best in probabilities.argmax(1))
        return Predictions(said=said, wanted=wanted, values=probabilities.max(1))

    def _chosen(self, probabilities: np.ndarray, wanted: tuple[str, ...]) -> Predictions:
        chosen = probabilities >= 0.5
        names = np.array(self.labels, dtype=object)
        return Predictions(
            said=tuple(SEVERAL.join(names[row]) for row in chosen),
            wanted=tuple(SEVERAL.join(several(label)) for label in wanted),
            values=np.where(chosen, probabilities, 1 - probabilities).prod(1),
        )

    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """Accuracy, macro-F1 and Matthews' correlation, with the most frequent training class as baseline.

        With several labels: micro-F1, macro-F1 and accuracy, with the label set that scores best on training as
        baseline.
        """
        blocks = blocks_of(corpus)
        if self.multi:
            sides = [chosen_labels(side, self.labels) for side in (predictions.wanted, predictions.said)]
            guess = best_set(chosen_labels(list(train.column("label")), self.labels))
            return set_scores(*sides, guess, blocks)
        places = {label: index for index, label in enumerate(self.labels)}
        wanted, said = (
            np.array([places[label] for label in side], dtype=np.int64)
            for side in (predictions.wanted, predictions.said)
        )
        guess = Counter(train.column("label")).most_common(1)[0][0]
        found = class_scores(wanted, said, places[guess], len(self.labels), blocks)
        return sorted(found, key=lambda score: score.metric != self.main)


def _classification(data: TaskData) -> Classification:
    multi = not set(data.labels).issuperset(data.train.column("label"))
    return Classification(task=data.name, labels=data.labels, multi=multi)


@dataclass(frozen=True, kw_only=True, slots=True)
class Regression(AbstractTextTask):
    r"""The number of each text, or of each pair of texts if the corpus has the column `second`.

    The model predicts the label standardised by the mean μ and standard deviation σ of the training labels, so that
    learning rates do not depend on the scale; the loss is $\left(f(x) - (y - \mu) / \sigma\right)^2$, and the
    prediction is $\mu + \sigma f(x)$. A trained model is saved with a head that predicts in the label's unit
    (`settled`).
    """

    name: ClassVar[str] = "regression"
    shape: ClassVar[Shape] = "regression"
    term_weights: ClassVar[dict[str, float]] = {"regression": 1.0}

    task: str
    mean: float
    deviation: float
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: str, train: Corpus) -> "Regression":
        """The task with the unit of a training part."""
        values = label_numbers(train)
        if np.ptp(values) == 0:
            raise UserError(
                f"A regression needs labels that differ. All {len(values):,} of {train.name} are {values[0]:g}.\n"
                "Name another column (label=), or use more data."
            )
        return cls(task=task, mean=float(values.mean()), deviation=float(values.std()))

    def targets(self, corpus: Corpus) -> np.ndarray:
        """The number of each example, in standard deviations from the mean."""
        return ((label_numbers(corpus) - self.mean) / self.deviation).astype(np.float32)

    def example_losses(
        self, module: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0
    ) -> Float[Tensor, " example"]:
        """Squared error, in units of the variance of training labels; label smoothing does not apply."""
        return (self._answers(module, batch) - batch[LABELS]) ** 2

    def _answers(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        """The model's output, in standard deviations from the mean."""
        return task_logits(module, batch)[:, 0]

    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The number of each example, in the unit of the labels."""
        values = np.zeros(len(corpus))
        for places, batch in answered(self, module, rows, vocabulary, batch_tokens):
            values[places] = self._answers(module, batch).cpu().numpy()
        values = self.mean + self.deviation * values
        wanted = tuple(str(label) for label in corpus.column("label"))
        return Predictions(said=tuple(f"{value:.4g}" for value in values), wanted=wanted, values=values)

    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """Pearson's and Spearman's correlation and r2, with the mean of the training labels as baseline."""
        guess = float(label_numbers(train).mean())
        return number_scores(label_numbers(corpus), predictions.values, guess, blocks_of(corpus))

    def right(self, predictions: Predictions, corpus: Corpus) -> Bool[np.ndarray, " example"]:
        """False for every example, since an exact match of numbers means nothing."""
        return np.zeros(len(predictions.said), dtype=bool)

    def settled(self, module: PreTrainedModel) -> "Regression":
        r"""Rescale the last layer, $w \cdot h + b$, to the label's unit: $\sigma w \cdot h + \sigma b + \mu$.

        A head without a bias (as GPT-2's) cannot represent $\mu$, so the head and the task stay as they are.
        """
        last = [one for one in module.modules() if isinstance(one, nn.Linear) and one.out_features == 1]
        if len(last) != 1 or last[0].bias is None:
            return self
        with torch.no_grad():
            last[0].weight.mul_(self.deviation)
            last[0].bias.mul_(self.deviation).add_(self.mean)
        return SettledRegression(task=self.task, mean=self.mean, deviation=self.deviation, labels=self.labels)


def _tagging(data: TaskData) -> Tagging:
    column = data.options.get("column") or tag_column(data.train, None, data.labels)
    return Tagging(task=data.name, labels=data.labels, column=column)


def _span(data: TaskData) -> SpanExtraction:
    return SpanExtraction(task=data.name, nullable=any(not answers for answers in data.train.column("answers")))


MAKERS: Mapping[Shape, Callable[[TaskData], AbstractTask]] = {
    "classification": _classification,
    "regression": lambda data: Regression.of(data.name, data.train),
    "tagging": _tagging,
    "choice": lambda data: Choice(task=data.name),
    "span": _span,
    "generation": lambda data: Generation(task=data.name),
}
"""How a task of each shape is built from its data."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SettledRegression(Regression):
    """The same task for a model whose head predicts in the label's unit."""

    def _answers(self, module: PreTrainedModel, batch: Batch) -> Float[Tensor, " example"]:
        return (task_logits(module, batch)[:, 0] - self.mean) / self.deviation

    def settled(self, module: PreTrainedModel) -> Regression:
        """This task, since the head is already in the label's unit."""
        return self


def best_set(wanted: np.ndarray) -> np.ndarray:
    """The labels with the highest micro-F1 if predicted for every example (the most frequent ones), bool (class,)."""
    often = wanted.sum(0)
    order = np.argsort(-often, kind="stable")
    numbers = np.arange(1, len(order) + 1)
    f1 = 2 * np.cumsum(often[order]) / (wanted.sum() + len(wanted) * numbers)
    guess = np.zeros(len(order), dtype=bool)
    guess[order[: int(f1.argmax()) + 1]] = True
    return guess
