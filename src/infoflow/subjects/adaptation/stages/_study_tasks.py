"""The tasks that a study's models are tuned for; they are read once, and other processes get what keys depend on."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from infoflow.architectures import EncoderLayout, Layout
from infoflow.flow import first_then_others, is_first, wait_for_all
from infoflow.foundation import (
    SilentDisplay,
    UserError,
    atomic_write,
    current_display,
    digest,
    read_object,
    use_display,
    version,
)
from infoflow.objectives import AbstractObjective
from infoflow.results import Recipe
from infoflow.studies._plan import StudyPlan

from ..measures import Shape, TaskData, as_text, built_in_task, load_task, training_part
from ..settings import FROZEN, TunePlan

_VERSION = 1  # increase when the same plan yields other tasks
_NOTE = "tasks.json"
_READS: tuple[Layout, ...] = (*get_args(EncoderLayout), "decoder", "encoder-decoder", "bidirectional-pair")
"""Layouts with a text reading stack; the encoder of encoder-decoders and the forward model of pairs is tuned."""
_WRITES: tuple[Layout, ...] = ("decoder", "encoder-decoder", "bidirectional-pair")
_CAUSAL: tuple[Layout, ...] = ("decoder", "bidirectional-pair")
_NO_CHOICE = ("gpt2", "t5")  # families that have no head for it in transformers


class StudyTasks:
    """The tasks of a plan.

    `prepared`: another process of the same study has read the tasks and stored what keys depend on.
    """

    def __init__(self, plan: StudyPlan, folder: Path, prepared: bool) -> None:
        self._plan, self._path = plan, folder / _NOTE
        self._read: dict[str, TaskData] = {}
        self._prepared, self._told = prepared, set[str]()
        self._note = _known(self._path, self._of) if prepared else {}
        if self._note or not plan.tune:
            return
        self._note = {asked.name: _facts(self.data(asked), asked) for asked in plan.tune}
        if not prepared:
            self._check_sizes()
        if is_first():
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(self._path) as temporary:
                temporary.write_text(json.dumps({"of": self._of, "tasks": self._note}), encoding="utf-8")
        wait_for_all()

    @cached_property
    def _of(self) -> str:
        asked = [_source(one) for one in self._plan.tune]
        return digest([version("infoflow"), _VERSION, asked])

    def data(self, asked: TunePlan) -> TaskData:
        """The parts of a task."""
        if asked.name not in self._read:
            silent = use_display(SilentDisplay()) if asked.name in self._note else nullcontext()  # already reported
            with silent:
                self._read[asked.name] = first_then_others(lambda: _task_data(asked))
        return self._read[asked.name]

    def named(self, name: str) -> TunePlan:
        """The plan's table for a task."""
        return next(asked for asked in self._plan.tune if asked.name == name)

    def digest(self, asked: TunePlan) -> str:
        """Digest of the content of all parts."""
        return self._note[asked.name]["digest"]

    def shape(self, asked: TunePlan) -> Shape:
        """The shape of the task."""
        return self._note[asked.name]["shape"]

    def sizes(self, asked: TunePlan) -> list[int]:
        """Distinct numbers of training examples, 0 for all; unattainable numbers are dropped and reported."""
        have = self._note[asked.name]["train"]
        sizes = [0 if size == have else size for size in asked.examples]
        if beyond := [size for size in sizes if size > have]:
            self.tell(
                f"{asked.name} has {have:,} training examples, so tuning on {', '.join(map(str, beyond))} is skipped."
            )
        return [size for size in dict.fromkeys(sizes) if size <= have] or [0]

    def _check_sizes(self) -> None:
        """Refuse too few examples before anything is trained, and report once which classes have none."""
        for asked in self._plan.tune:
            for size in self.sizes(asked):
                training_part(self.data(asked), size, "")

    def fitting(self, asked: TunePlan, recipes: Sequence[Recipe]) -> list[Recipe]:
        """The recipes whose models can be tuned for the task; the others are reported."""
        shape, plan = self.shape(asked), self._plan
        wanted = [one for one in recipes if not asked.objectives or one.objective.label in asked.objectives]
        found = [one for one in wanted if fits_task(shape, one, plan.objective(one.objective.label))]
        if left := dict.fromkeys(one.name.partition("/")[0] for one in wanted if one not in found):
            what = "that writes text" if shape == "generation" else f"that has an output for {shape}"
            self.tell(f"{asked.name} needs a model {what}. Left out: {', '.join(left)}.")
        return found

    def methods(self, asked: TunePlan) -> list[str]:
        """Tuning methods for the task.

        The pretrained head generates text, so frozen features have no head to train; this is reported.

        Raises:
            UserError: The plan requests only frozen features for a generation task.
        """
        if self.shape(asked) != "generation" or FROZEN not in asked.methods:
            return list(asked.methods)
        found = [method for method in asked.methods if method != FROZEN]
        why = "the pretrained head writes the text, so frozen features leave nothing to train"
        if not found:
            raise UserError(
                f'tune.methods of {asked.name} must contain full, top, decay or lora: {why}. Got ["{FROZEN}"]. Add one.'
            )
        self.tell(f"{asked.name}: {why}. Only these methods are used: {', '.join(found)}.")
        return found

    def tell(self, note: str) -> None:
        """Report something once, only in the first process of a study."""
        if note not in self._told and not self._prepared:
            current_display().note(note)
        self._told.add(note)

    def share(self, asked: TunePlan, size: int) -> float:
        """Training examples of a size, in thousands."""
        return (size or self._note[asked.name]["train"]) / 1000


def fits_task(shape: Shape, recipe: Recipe, objective: AbstractObjective) -> bool:
    """Whether a model of the recipe can be tuned for tasks of the shape.

    Generation needs a model that writes, the other tasks one that reads. A model that sees no later token cannot know
    at a word whether an answer begins there, and knows nothing at the first token, from which multiple choice is read.
    """
    layout, family = objective.layout, recipe.architecture.name
    if layout not in _READS or family == "elmo":
        return False
    if shape == "generation":
        return layout in _WRITES
    if shape in ("span", "choice") and layout in _CAUSAL:
        return False
    return shape != "choice" or family not in _NO_CHOICE


def unlabelled(data: TaskData) -> list[str]:
    """The distinct texts of the training part without labels, for a task-adaptive phase."""
    corpus = data.train
    columns = [name for name in ("text", "second", "question") if name in corpus.columns]
    return list(dict.fromkeys(text for name in columns for text in corpus.column(name) if text))


def _source(asked: TunePlan) -> list[Any]:
    """Key of a task's source and format."""
    words = [*(["as text"] if asked.as_text else []), *(["several labels"] if asked.multi else [])]
    return [asked.name, asked.train, asked.dev, asked.test, asked.shape, asked.columns, asked.size, *words]


def _task_data(asked: TunePlan) -> TaskData:
    data = _labelled_data(asked)
    return as_text(data) if asked.as_text else data


def _labelled_data(asked: TunePlan) -> TaskData:
    if not asked.train:
        return built_in_task(asked.name, asked.size)
    parts = {"train": asked.train, "dev": asked.dev or None, "test": asked.test or None}
    how: dict[str, Any] = {"shape": asked.shape or None, "multi": asked.multi, **asked.named_columns}
    return load_task(asked.name, **parts, **how)


def _facts(data: TaskData, asked: TunePlan) -> dict[str, Any]:
    parts = (data.train, data.dev, data.test)
    columns = [sorted(part.columns) for part in parts]
    named = [data.options["column"]] if "tags" in asked.named_columns else []
    content = [data.shape, data.labels, [part.digest for part in parts], columns, *named]
    return {"digest": digest(content), "shape": data.shape, "train": len(data.train)}


def _known(path: Path, of: str) -> dict[str, Any]:
    """Contents of the note; empty if it is missing, damaged, or of another plan."""
    try:
        facts = read_object(path)
        return facts["tasks"] if facts["of"] == of else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
