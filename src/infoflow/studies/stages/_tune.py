"""Tune one model of a study for one task in one way, with all seeds."""

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from infoflow.adaptation import TASK_ANSWERS, TASK_SCORES, TUNING_ALLOCATION, AllocationHooks, make_task, tune
from infoflow.flow import agree, is_first, wait_for_all
from infoflow.foundation import digest
from infoflow.results import KEYS, TableSchema

from .._quiet import without_notes
from .._study_models import StudyModels
from .._tuned_subject import TunedSubject, tuned_subjects
from .._tuning_plan import FROZEN
from .._workbench import Part
from ._specialise import specialise_key
from ._stage import AbstractStage, firsts
from ._train import train_stage_key

TUNED = "tuned"
_SCHEMAS = {schema.name: schema for schema in (TASK_SCORES, TASK_ANSWERS, TUNING_ALLOCATION)}
_TOKENS = 20  # of an example, for costs


@dataclass(frozen=True, kw_only=True, eq=False)
class Tune(AbstractStage):
    """One pretrained model × task × method × size × control × strategy.

    Tuned models are removed when they are scored, but for those that stay to be looked at.
    """

    kind = "tune"
    tuned: TunedSubject
    again: bool = False  # whether an earlier stage of another model's name leaves the same tables
    last: bool = False  # of those that share the features of a frozen body: they are removed behind it

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Tune]":
        """Frozen ones of a model wait for each other, so that its features are computed once; so do those of models
        that are the same before training, which are tuned once."""
        stages = [cls(tuned=tuned) for tuned in tuned_subjects(models)]
        alike = firsts(stages, lambda stage: stage.tuned.key)
        around = zip(stages, [None, *stages], [*stages, None][1:], alike, strict=False)
        return [stage._among(before, after, first) for stage, before, after, first in around]

    def _among(self, before: "Tune | None", after: "Tune | None", first: "Tune | None") -> "Tune":
        """The stage with what it waits for: the one before it and the first of those that leave the same tables."""
        earlier = before if before is not None and _share_features(before.tuned, self.tuned) else None
        waits = dict.fromkeys(one.key for one in (earlier, first) if one)
        return replace(self, needs=(*_needs(self.tuned), *waits), again=first is not None, last=_is_last(self, after))

    @property
    def estimate(self) -> float:
        if self.again:
            return 0.0005
        tuned, training = self.tuned, self.tuned.models.plan.training
        config, thousands = tuned.config, tuned.models.tasks.share(tuned.asked, tuned.examples)
        runs = len(config.seeds) + len(config.rates) - 1
        tokens = 1000 * thousands * config.epochs * runs * _TOKENS
        return tokens / (training.updates * training.batch_tokens) / (4 if tuned.method == FROZEN else 1)

    @cached_property
    def key(self) -> str:
        return tune_stage_key(self.tuned)

    @property
    def label(self) -> str:
        return f"tune {self.tuned.name}"

    def is_done(self) -> bool:
        tuned = self.tuned
        there = not tuned.stays or tuned.folder.is_dir()
        return agree(there and tuned.models.bench.done(TUNED, self._results))

    def run(self) -> dict[str, Any]:
        tuned, bench = self.tuned, self.tuned.models.bench
        if tuned.stays and not tuned.folder.is_dir():
            bench.remove(TUNED, self._results)  # its models are gone
        bench.tables(TUNED, self._results, _SCHEMAS, self._tune)
        if is_first():
            if not tuned.stays:
                shutil.rmtree(tuned.folder, ignore_errors=True)
            if self.last:
                shutil.rmtree(tuned.features, ignore_errors=True)
        wait_for_all()
        return {}

    def tables(self) -> Part:
        columns = self.tuned.columns()
        stored = self.tuned.models.bench.read(TUNED, self._results)
        return {name: frame.assign(**columns) for name, frame in stored.items()}

    def schemas(self) -> dict[str, TableSchema]:
        return {name: schema.with_keys(*KEYS) for name, schema in _SCHEMAS.items()}

    @property
    def _results(self) -> str:
        """Key of the tables, which do not say whose model it is."""
        versions = [[schema.name, schema.version] for schema in _SCHEMAS.values()]
        return digest([versions, self.tuned.strategy, self.tuned.key])

    def _tune(self) -> Part:
        tuned = self.tuned
        data, model, config = tuned.models.tasks.data(tuned.asked), tuned.load(), tuned.config
        task, folder = make_task(data, trained=tuned.objective), tuned.folder
        hooks = None
        if tuned.followed:
            kept = folder / "allocation"
            hooks = AllocationHooks(model=model, data=data, task=task, config=config, folder=kept)
        # What is said of texts and heads is the same for all ways of tuning a model: it is told of one.
        with nullcontext() if tuned.plain else without_notes():
            result = tune(
                model,
                data,
                config,
                folder,
                task=task,
                strategy=tuned.strategy,
                hooks=hooks,
                features=tuned.features,
            )
        found = {TASK_SCORES.name: result.scores, TASK_ANSWERS.name: result.answers}
        if hooks is not None and (allocated := hooks.table(result.models)) is not None:
            shared = tuned.tuned_columns(task.shape, len(result.train))
            found[TUNING_ALLOCATION.name] = allocated.assign(**shared)
        return found


def tune_stage_key(tuned: TunedSubject) -> str:
    """Key of the stage: models of two names may be the same."""
    return digest(["tune", tuned.key, tuned.strategy, tuned.subject.label])


def _needs(tuned: TunedSubject) -> tuple[str, ...]:
    if tuned.special is not None:
        return (specialise_key(tuned.special),)
    return (train_stage_key(tuned.models, tuned.subject.recipe),) if tuned.subject.trained else ()


def _is_last(stage: Tune, after: Tune | None) -> bool:
    """Whether no stage behind it reads the same features."""
    return stage.tuned.method == FROZEN and (after is None or not _share_features(stage.tuned, after.tuned))


def _share_features(first: TunedSubject, second: TunedSubject) -> bool:
    return first.method == second.method == FROZEN and first.model_key == second.model_key
