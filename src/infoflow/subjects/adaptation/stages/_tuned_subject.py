"""A model that a study tunes (trained or untrained, general or specialised), with the task and the method."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from infoflow.foundation import digest
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.results import Recipe, Subject
from infoflow.studies._study_models import StudyModels

from ..measures import FROZEN_METHODS, INSIDE, TUNING_CHANGE, TuneConfig, reads_both_sides
from ..settings import TunePlan
from ._specialised import Specialised, specialised
from ._study_tasks import AS_IS, StudyDomain, StudyTasks

FULL, SHUFFLED, UNTRAINED = "full", "shuffled-labels", "untrained"
_TUNING, _FEATURES = "tuning", "tuning-features"


@dataclass(frozen=True, kw_only=True, eq=False)
class TunedSubject:
    """One combination of pretrained model, task, method, size and control, with all tuning seeds."""

    models: StudyModels
    subject: Subject
    entry: TunePlan
    special: Specialised | None = None  # None: the model as the study pretrained it
    method: str = FULL
    examples: int = 0  # 0: all
    control: str = ""

    @property
    def strategy(self) -> str:
        return self.special.shown if self.special else AS_IS

    @property
    def inside(self) -> tuple[str, ...]:
        """The tables of the inside view to compute.

        These are all tables for full tuning of a general or (as a control) an untrained model on all examples; only
        TUNING_CHANGE for such tuning on shuffled labels; and none in all other cases.
        """
        named = self.entry.inside_objectives
        if not self.entry.inside or (named and self.subject.recipe.objective.label not in named):
            return ()
        if self._whole:
            return INSIDE
        return (TUNING_CHANGE.name,) if self._alike and self.control == SHUFFLED else ()

    @property
    def followed(self) -> bool:
        """Whether loss changes are allocated to parts: for examined models, and for untrained models equal to them."""
        return self._whole and (bool(self.inside) or self._same_is_looked_at)

    @cached_property
    def _same_is_looked_at(self) -> bool:
        """Whether this is an untrained model that is also examined under the name of another objective."""
        if self.subject.trained or not self.entry.inside:
            return False
        named = [one for one in self.models.plan.recipes() if one.objective.label in self.entry.inside_objectives]
        others = (dataclasses.replace(self, subject=Subject(recipe=one).before_training()) for one in named)
        return any(other.key == self.key for other in others)

    @property
    def stays(self) -> bool:
        """Whether the tuned models are kept for examination."""
        return bool(self.inside) or self.followed

    @property
    def plain(self) -> bool:
        """Whether this is the general pretrained model, tuned in full on all examples with their labels."""
        return self._whole and self.subject.trained

    @property
    def _whole(self) -> bool:
        """Whether all weights of a model without further pretraining are tuned on all examples with their labels."""
        return self._alike and not self.control

    @property
    def _alike(self) -> bool:
        """The condition of `_whole`, except that the labels may be shuffled."""
        return (self.method, self.examples, self.strategy) == (FULL, 0, AS_IS)

    @property
    def config(self) -> TuneConfig:
        device = self.models.plan.training.device
        return self.entry.config(self.method, self.examples, self.control, device)

    @property
    def name(self) -> str:
        """Display name."""
        size = f"{self.examples:,} examples" if self.examples else ""
        untrained = "" if self.subject.trained else "from scratch"
        special = self.strategy if self.special else ""
        details = [one for one in (special, untrained, self.method, size, self.control) if one]
        return f"{self.subject.name} for {self.entry.name} ({', '.join(details)})"

    @property
    def objective(self) -> AbstractObjective:
        """The pretraining objective of the model."""
        return self.models.objective(self.subject.recipe)

    @cached_property
    def model_key(self) -> str:
        """Key of the weights before tuning; untrained models are equal for many objectives."""
        if self.special is not None:
            return self.special.key
        if self.subject.trained:
            return self.models.train_key(self.subject.recipe)
        return self.models.begins_key(self.subject.recipe)

    @cached_property
    def key(self) -> str:
        """Key of everything that the tuned models depend on."""
        config = self.config
        content = [
            self.model_key,
            self.models.own(StudyTasks).digest(self.entry),
            config.key(),
            config.seeds,
            config.answers,
        ]
        both = reads_both_sides(self.models.own(StudyTasks).shape(self.entry), self.objective)
        return digest([*content, *(["two-sided"] if both else [])])

    @property
    def folder(self) -> Path:
        """Working folder of `tune`, which holds its models."""
        return self.models.bench.path(_TUNING, self.key)

    @property
    def features(self) -> Path:
        """Folder in which the features of the frozen body are kept for the next task."""
        return self.models.bench.path(_FEATURES, self.model_key)

    def load(self) -> Model:
        """The pretrained model."""
        return self.special.load() if self.special else self.models.load(self.subject)

    def tuned_columns(self, shape: str, examples: int) -> dict[str, Any]:
        """The subject's values in the columns of `TUNED`."""
        return {
            "task": self.entry.name,
            "shape": shape,
            "strategy": self.strategy,
            "method": self.method,
            "examples": examples,
            "control": self.control,
        }


def tuned_subjects(models: StudyModels) -> Iterator[TunedSubject]:
    """All tunings that a plan requests, by task and model; those with a frozen body come last, grouped by model."""
    plan = models.plan
    every = [one for entry in plan.tune for one in _of_task(models, entry)]
    yield from (one for one in every if one.method not in FROZEN_METHODS)
    frozen = [one for one in every if one.method in FROZEN_METHODS]
    yield from sorted(frozen, key=lambda one: (one.method, one.subject.name, one.model_key))


def _of_task(models: StudyModels, entry: TunePlan) -> Iterator[TunedSubject]:
    """Every model with every method and size, then the controls: untrained models, which learn the task from scratch,
    and shuffled labels.
    """
    tasks = models.own(StudyTasks)
    sizes, methods = tasks.sizes(entry), tasks.methods(entry)
    for recipe in tasks.fitting(entry, models.plan.recipes()):
        plain = TunedSubject(models=models, subject=Subject(recipe=recipe), entry=entry)
        for special, method, size in product(_pretrained(models, recipe, entry), methods, sizes):
            yield dataclasses.replace(plain, special=special, method=method, examples=size)
        if UNTRAINED in entry.controls:
            untrained = plain.subject.before_training()
            yield from (dataclasses.replace(plain, subject=untrained, examples=size) for size in sizes)
        if SHUFFLED in entry.controls:
            yield dataclasses.replace(plain, control=SHUFFLED)


def _pretrained(models: StudyModels, recipe: Recipe, entry: TunePlan) -> list[Specialised | None]:
    """The general model (None) and the specialised ones; for the phase "task", only the one for this task."""
    if not models.plan.domain.on or recipe not in models.own(StudyDomain).recipes:
        return [None]
    return [None, *(one for one in specialised(models, recipe) if one.task is None or one.task is entry)]
