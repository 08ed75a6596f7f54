"""Tuned models: plain Hugging Face folders with a `task.json`."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, named_fields, read_object
from infoflow.models import Model, load_model

from ._predictions import predictions_of
from ._task import AbstractTask, Score
from ._task_parts import TaskParts, task_tokenizer

TASK_FILE = "task.json"
_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TunedModel:
    """One tuned model on disk."""

    folder: Path
    task: AbstractTask
    seed: int
    learning_rate: float
    updates: int
    max_length: int
    facts: Mapping[str, Any]
    """Contents of task.json.

    `recipe`, `metric`, `examples`, `dev` and `test` with the main metric, `rates` with the dev metric of each learning
    rate that was tried (with the first seed; -2e9 if training diverged).
    """

    def load(self, device: str = "auto") -> Model:
        """The model, with its head."""
        return load_model(self.folder, device=device)

    def score(self, corpus: Corpus, train: Corpus, device: str = "auto") -> list[Score]:
        """The task's metrics on a labelled corpus, the main one first; `train` is what the baseline guess may use."""
        model = self.load(device)
        parts = TaskParts(
            task=self.task,
            train=train,
            dev=corpus,
            test=corpus,
            tokenizer=task_tokenizer(model),
            target_tokenizer=model.target_tokenizer,
            max_length=self.max_length,
        )
        predictions = predictions_of(self.task, model.module, parts.rows("test"), corpus, parts.vocabulary)
        return self.task.scores(predictions, corpus, train)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tuned:
    """Result of `tune`: one model per seed."""

    task: AbstractTask
    models: tuple[TunedModel, ...]
    train: Corpus
    """Their training data: a subset, or with shuffled labels, if configured."""
    scores: pd.DataFrame
    """TASK_SCORES, for dev and test."""
    answers: pd.DataFrame
    """TASK_ANSWERS."""


def load_tuned(folder: Path | str) -> TunedModel:
    """A tuned model as saved by `tune`.

    Raises:
        UserError: The folder holds no tuned model.
    """
    folder = Path(folder)
    try:
        facts = read_object(folder / TASK_FILE)
        if facts["version"] > _VERSION:
            raise UserError(f"{folder} was written by a newer infoflow. Upgrade: pip install --upgrade infoflow")
        return _tuned_model(folder, facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UserError(
            f"A tuned model is a folder with weights and {TASK_FILE}, such as seed-0 in the method's folder. "
            f"{folder} is not one, or its {TASK_FILE} is damaged. Name a folder that infoflow tune wrote."
        ) from error


def _tuned_model(folder: Path, facts: Mapping[str, Any]) -> TunedModel:
    return TunedModel(
        folder=folder,
        task=task_from(facts["task"]),
        seed=int(facts["seed"]),
        learning_rate=float(facts["learning_rate"]),
        updates=int(facts["updates"]),
        max_length=int(facts["recipe"]["max_length"]),
        facts=facts,
    )


def write_facts(folder: Path, task: AbstractTask, facts: Mapping[str, Any]) -> None:
    """Write `task.json` into a model's folder."""
    values = {"version": _VERSION, "task": task_to(task), **facts}
    text = json.dumps(values, indent=2, ensure_ascii=False)
    (folder / TASK_FILE).write_text(text + "\n", encoding="utf-8")


def task_to(task: AbstractTask) -> dict[str, Any]:
    """A task as JSON."""
    return json.loads(json.dumps({"class": type(task).__name__, **named_fields(task)}))


def task_from(values: Mapping[str, Any]) -> AbstractTask:
    """The task that `task_to` wrote.

    Raises:
        KeyError: There is no class of that name.
    """
    kinds = {kind.__name__: kind for kind in _kinds(AbstractTask)}
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return kinds[fields.pop("class")](**fields)


def _kinds(kind: type) -> Iterator[Any]:
    for child in kind.__subclasses__():
        yield child
        yield from _kinds(child)
