"""Supervised tasks: labelled parts, their labels and tags, and an objective for a model with a task head."""

import math
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerBase
from infoflow.architectures import Layout
from infoflow.corpus import Corpus, Vocabulary, tag_columns
from infoflow.foundation import UserError, as_written
from infoflow.objectives import AbstractObjective, Batch, Corrupted, Example, Family, LossTerm, Noise
from infoflow.training import ExampleRows

Shape = Literal["classification", "regression", "tagging", "span", "choice", "generation"]
"""Label of an example: a class or number of a text or pair, a tag per word, an answer span, a choice, or a text."""
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
    """Classes or tags, by default in order of first occurrence in `train`; empty for shapes without classes."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of unusable examples, by reason."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the task's class for this data, for `make_task`."""


def check_task_name(name: str) -> None:
    """Raise a UserError if a task's name (such as `acl-arc` or `classify/acl-arc`) cannot be a folder in the run's."""
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
    """Predictions as text: a label, a number, tags joined by blanks, the answer (empty: none), the generated text."""
    wanted: tuple[str, ...]  # the references in the same form; the first one if there are several
    values: Float[np.ndarray, " example"]
    """For a regression, the predicted number; otherwise the probability (for a span or text, the score) of each."""
    alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()
    """The n best answers of each example with their scores, if the shape has several answers."""


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

    It does not change examples; `corrupt` only converts them to arrays. Layout and family matter only for pretraining.
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
            UserError: An example cannot be used; for instance, its label does not occur in training.
        """

    @abstractmethod
    def example_losses(
        self, module: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0
    ) -> Float[Tensor, " example"]:
        """Loss of each example of a batch in nats (squared error for a regression), differentiable."""

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """The sum of the examples' losses, with the number that `counts` returns."""
        ((term, count),) = self.counts(batch).items()
        return {term: LossTerm(total=self.example_losses(module, batch, label_smoothing).sum(), count=count)}

    @abstractmethod
    def predict(
        self, module: PreTrainedModel, rows: ExampleRows, corpus: Corpus, vocabulary: Vocabulary, batch_tokens: int
    ) -> Predictions:
        """The predictions of the model, in evaluation mode, for every example of the part."""

    @abstractmethod
    def scores(self, predictions: Predictions, corpus: Corpus, train: Corpus) -> list[Score]:
        """The task's metrics, the main one first; the baseline guess may use `train`."""

    def settled(self, module: PreTrainedModel) -> "AbstractTask":
        """Convert a trained model, in place, to the form that users of the saved model expect.

        Returns the task of the converted model; default: both stay unchanged.
        """
        return self

    def right(self, predictions: Predictions, corpus: Corpus) -> Bool[np.ndarray, " example"]:
        """Which answers count as right: by default those that equal the reference; in a regression none."""
        pairs = zip(predictions.said, predictions.wanted, strict=True)
        return np.array([said == wanted for said, wanted in pairs], dtype=bool)


# Labels of a part as numbers, and checks on them.

SEVERAL = "|"  # separator of the labels of an example with several


def label_indices(corpus: Corpus, labels: Sequence[str]) -> Int[np.ndarray, " example"]:
    """The class index of each example."""
    places = {label: index for index, label in enumerate(labels)}
    found = list(corpus.column("label"))
    check_known(found, places, corpus)
    return np.array([places[label] for label in found], dtype=np.int64)


def label_sets(corpus: Corpus, labels: Sequence[str]) -> Float[np.ndarray, "example label"]:
    """The labels of each example, 1 or 0; an example may have none."""
    found = list(corpus.column("label"))
    check_known([label for each in found for label in several(each)], labels, corpus)
    return chosen_labels(found, labels).astype(np.float32)


def chosen_labels(found: Sequence[str | None], labels: Sequence[str]) -> Bool[np.ndarray, "example label"]:
    """Whether each example has each label; an example may have several."""
    places = {label: index for index, label in enumerate(labels)}
    chosen = np.zeros((len(found), len(labels)), dtype=bool)
    for row, each in enumerate(found):
        chosen[row, [places[label] for label in several(each)]] = True
    return chosen


def label_numbers(corpus: Corpus) -> Float[np.ndarray, " example"]:
    """The number that labels each example."""
    check_numbers(corpus)
    found = list(corpus.column("label"))
    _check_labelled(found, corpus)
    return np.array([number(label) for label in found], dtype=np.float64)


def number(label: str | None) -> float | None:
    """The value of a numeric label, else None."""
    try:
        value = float(label or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def several(label: str | None) -> list[str]:
    """The labels of an example that may have several: `A|B` has two, an empty one has none."""
    return [part for part in (piece.strip() for piece in (label or "").split(SEVERAL)) if part]


def check_numbers(corpus: Corpus) -> None:
    """Raise a UserError for the first label that is not a number; examples without a label are skipped."""
    for row, label in enumerate(corpus.column("label")):
        if label is not None and number(label) is None:
            raise UserError(
                f"A regression needs numeric labels. {corpus.name}, example {row + 1}, has "
                f"{as_written(label)}.\nName the column of the numbers (label=), or ask for classes: "
                'shape="classification".'
            )


def check_known(found: Iterable[str | None], known: Iterable[str], corpus: Corpus, column: str = "label") -> None:
    """Raise a UserError that lists the labels (or tags, by `column`) of a part that the task does not have."""
    known = dict.fromkeys(known)
    found = list(found)
    unknown = list(dict.fromkeys(label for label in found if label is not None and label not in known))
    if unknown:
        times = sum(label in set(unknown) for label in found)
        raise UserError(
            f"Every label of {corpus.name} must occur in training. {times:,} of its labels do not: "
            f"{listed(unknown)}; those of training are {listed(list(known))}.\n"
            f"Correct them, leave those examples out, or name another column ({column}=)."
        )
    _check_labelled(found, corpus)


def _check_labelled(found: Sequence[str | None], corpus: Corpus) -> None:
    if missing := sum(label is None for label in found):
        raise UserError(
            f"Every example must have a label. {missing:,} of {corpus.name} have none.\n"
            "Leave them out, or name another column (label=)."
        )


def listed(labels: Sequence[str]) -> str:
    """A list of labels for a message, six at most."""
    more = f" and {len(labels) - 6:,} more" if len(labels) > 6 else ""
    return ", ".join(as_written(label) for label in labels[:6]) + more


# Tags of words: their column, their names, and checks on them.

NOT_READ = "[not-read]"  # prediction for a word without tokens (truncated or empty); it never counts as right
OUTSIDE = "O"
_ENTITY = re.compile(r"[BIES]-.+")


def tag_column(corpus: Corpus, named: str | None, labels: Sequence[str] = ()) -> str:
    """The tag column of a corpus: the named one, `tag`, `upos`, or the only one.

    If `labels` are given, it is the first column whose tags are all among them.
    """
    if "words" not in corpus.columns:
        raise UserError(
            f"Tags need words. {corpus.name} has no words, only {', '.join(sorted(corpus.columns))}.\n"
            "Read word<TAB>tag lines (Corpus.from_tagged), CoNLL-U, or a data set (with the columns words= and tags=)."
        )
    found = sorted(tag_columns(corpus), key=lambda column: (column != "tag", column != "upos", column))
    if labels:
        known = set(labels)
        found = [name for name in found if all(known.issuperset(tags) for tags in corpus.column(name))] or found
    if (named is not None and named not in found) or not found:
        raise UserError(
            f"{corpus.name} has no tags {as_written(named)}. Its tags: {', '.join(found) or 'none'}.\n"
            "Name one of them: tags=."
        )
    return named or found[0]


def check_tags(tags: Sequence[str]) -> None:
    """Raise a UserError for a tag that is empty or has white space, since tags are written separated by blanks."""
    if spaced := [tag for tag in tags if tag.split() != [tag] or tag == NOT_READ]:
        raise UserError(f"A tag must not contain white space. Got {as_written(spaced[0])}. Rename it.")


def are_entities(tags: Iterable[str]) -> bool:
    """Whether tags mark entities: `O`, and `B-` or `I-` (or `E-`, `S-`) before a type."""
    tags = set(tags)
    return bool(tags - {OUTSIDE}) and all(_ENTITY.fullmatch(tag) for tag in tags - {OUTSIDE})


def tags_of(corpus: Corpus, column: str) -> Iterable[Sequence[str]]:
    """The tags of each sentence."""
    corpus.require("words", column)
    return corpus.column(column)
