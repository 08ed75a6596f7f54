"""`make_task`: the training objective for a task's data."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from infoflow.foundation import UserError
from infoflow.objectives import AbstractObjective, PrefixDecoder

from ._choice import Choice
from ._classification import Classification
from ._generation import Generation
from ._regression import Regression
from ._span_extraction import SpanExtraction
from ._tagging import Tagging
from ._tags import tag_column
from ._task import AbstractTask, Shape, TaskData


def make_task(data: TaskData, *, trained: AbstractObjective | None = None, **options: Any) -> AbstractTask:
    """The objective for `training.train` on the task of `data`.

    Args:
        data: The task's parts.
        trained: The model's pretraining objective, if known (`training.trained_objective`): after prefix language
            modelling with one stack, targets are written after sources with bidirectional attention.
        options: Fields of the task's class; they override those of `data`.

    Raises:
        UserError: There is no class for the shape, or no such option.
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
    """Whether a single-stack model pretrained for `trained` should see its sources bidirectionally."""
    return shape == "generation" and isinstance(trained, PrefixDecoder)


def _classification(data: TaskData) -> Classification:
    known = {*data.labels}
    several = any(label is None or label not in known for label in data.train.column("label"))
    return Classification(task=data.name, labels=data.labels, multi=several)


def _regression(data: TaskData) -> Regression:
    return Regression.of(data.name, data.train)


def _tagging(data: TaskData) -> Tagging:
    column = data.options.get("column") or tag_column(data.train, None, data.labels)
    return Tagging(task=data.name, labels=data.labels, column=column)


def _choice(data: TaskData) -> Choice:
    return Choice(task=data.name)


def _span(data: TaskData) -> SpanExtraction:
    return SpanExtraction(task=data.name, nullable=any(not answers for answers in data.train.column("answers")))


def _generation(data: TaskData) -> Generation:
    return Generation(task=data.name)


MAKERS: Mapping[Shape, Callable[[TaskData], AbstractTask]] = {
    "classification": _classification,
    "regression": _regression,
    "tagging": _tagging,
    "choice": _choice,
    "span": _span,
    "generation": _generation,
}
"""How a task of each shape is built from its data."""
