"""Stages that tune a model of a study for a task by one method, with all seeds, and examine its layers and heads."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

from infoflow.flow import agree, is_first, wait_for_all
from infoflow.foundation import digest
from infoflow.studies._result_cache import Part, ResultCache, Schemas
from infoflow.studies._run import without_notes
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._stage import AbstractStage, AbstractTableStage, firsts
from infoflow.studies.stages._train import Train

from ..measures import (
    FROZEN_METHODS,
    INSIDE_TABLES,
    TASK_ANSWERS,
    TASK_SCORES,
    TUNING_ALLOCATION,
    AllocationHooks,
    InsideSizes,
    TunedModel,
    inside_view,
    load_tuned,
    make_task,
    tune,
)
from ._specialise import Specialise
from ._study_tasks import StudyTasks
from ._tuned_subject import TunedSubject, tuned_subjects

_TOKENS = 20  # assumed number of tokens per example, for cost estimates
_INSIDE_VERSION = 2  # increase when the same models are examined differently


@dataclass(frozen=True, kw_only=True, eq=False)
class OfTuned(AbstractStage):
    """A stage of one pretrained model that is tuned for one task."""

    tuned: TunedSubject

    @property
    def models(self) -> StudyModels:
        return self.tuned.models

    @property
    def cache(self) -> ResultCache:
        return self.models.bench

    def columns(self) -> Mapping[str, Any]:
        return self.tuned.subject.keys()


@dataclass(frozen=True, kw_only=True, eq=False)
class Tune(OfTuned, AbstractTableStage):
    """Tunes one combination of pretrained model, task, method, size, control and strategy.

    Tuned models are removed once they are scored, except those kept for examination.
    """

    kind = "tune"
    named = "tune {self.tuned.name}"
    stored = "tuned"
    makes = (TASK_SCORES, TASK_ANSWERS, TUNING_ALLOCATION)
    again: bool = False  # whether an earlier stage, under another model's name, writes the same tables
    last: bool = False  # whether it is the last stage that uses the features of a frozen body, which it then removes

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Tune]":
        """Stages in an order that avoids double work: those with the same frozen model wait for each other, so that its
        features are computed once; models that are equal before tuning are tuned once.
        """
        stages = [cls(tuned=tuned) for tuned in tuned_subjects(models)]
        alike = firsts(stages, lambda stage: stage.tuned.key)
        around = zip(stages, [None, *stages], [*stages, None][1:], alike, strict=False)
        return [stage._among(before, after, first) for stage, before, after, first in around]

    def _among(self, before: "Tune | None", after: "Tune | None", first: "Tune | None") -> "Tune":
        """The stage with its dependencies, among them one with the same features and the first with equal tables."""
        earlier = before if before is not None and _share_features(before.tuned, self.tuned) else None
        waits = dict.fromkeys(one.key for one in (earlier, first) if one)
        return replace(self, needs=(*self._begins_with(), *waits), again=first is not None, last=_is_last(self, after))

    @property
    def estimate(self) -> float:
        if self.again:
            return 0.0005
        tuned, training = self.tuned, self.tuned.models.plan.training
        config, thousands = tuned.config, tuned.models.own(StudyTasks).share(tuned.entry, tuned.examples)
        runs = len(config.seeds) + len(config.rates) - 1
        tokens = 1000 * thousands * config.epochs * runs * _TOKENS
        return tokens / (training.updates * training.batch_tokens) / (4 if tuned.method in FROZEN_METHODS else 1)

    def _begins_with(self) -> tuple[str, ...]:
        tuned = self.tuned
        if tuned.special is not None:
            return (Specialise(model=tuned.special).key,)
        return (Train(models=self.models, recipe=tuned.subject.recipe).key,) if tuned.subject.trained else ()

    def depends(self) -> list[Any]:
        """What the stage depends on, including the name, since two models with different names may be equal."""
        return ["tune", self.tuned.key, self.tuned.strategy, self.tuned.subject.label]

    @property
    def content(self) -> str:
        """Key of the tables, which do not name the model."""
        versions = [[schema.name, schema.version] for schema in self.makes]
        return digest([versions, self.tuned.strategy, self.tuned.key])

    def is_done(self) -> bool:
        there = not self.tuned.stays or self.tuned.folder.is_dir()
        return agree(there and self.cache.done(self.stored, self.content))

    def run(self) -> dict[str, Any]:
        tuned = self.tuned
        if tuned.stays and not tuned.folder.is_dir():
            self.cache.remove(self.stored, self.content)  # its models are missing, so they are tuned again
        super().run()
        if is_first():
            if not tuned.stays:
                shutil.rmtree(tuned.folder, ignore_errors=True)
            if self.last:
                shutil.rmtree(tuned.features, ignore_errors=True)
        wait_for_all()
        return {}

    def make(self) -> Part:
        tuned = self.tuned
        data, model, config = tuned.models.own(StudyTasks).data(tuned.entry), tuned.load(), tuned.config
        task, folder = make_task(data, trained=tuned.objective), tuned.folder
        hooks = None
        if tuned.followed:
            kept = folder / "allocation"
            hooks = AllocationHooks(model=model, data=data, task=task, config=config, folder=kept)
        # Notes on texts and heads are the same for all tuning methods of a model, so only one of them shows notes.
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


@dataclass(frozen=True, kw_only=True, eq=False)
class InsideTuned(OfTuned, AbstractTableStage):
    """Compares a pretrained model with the models tuned from it in full on all examples of a task, with all seeds.

    For models tuned on shuffled labels, it only measures how far spaces moved.
    """

    kind = "inside"
    named = "examine {self.tuned.subject.name} tuned for {self.tuned.entry.name}{self.control}"
    stored = "inside"

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[InsideTuned]":
        stages = [stage for stage in before if isinstance(stage, Tune) and stage.tuned.inside]
        return [cls(tuned=stage.tuned, needs=(stage.key,)) for stage in stages]

    def depends(self) -> list[Any]:
        versions = [[schema.name, schema.version] for schema in INSIDE_TABLES.values()]
        sizes, plan = asdict(InsideSizes()), self.models.plan.analysis
        passes = [plan.tokens_per_batch, *plan.budget]
        tuning = Tune(tuned=self.tuned).key
        return ["inside", _INSIDE_VERSION, versions, tuning, sizes, *passes, self.models.data_key]

    @property
    def control(self) -> str:
        return f" on {self.tuned.control}" if self.tuned.control else ""

    @property
    def estimate(self) -> float:
        return 0.3 if len(self.tuned.inside) > 1 else 0.05

    def plain_schemas(self) -> Schemas:
        return {name: INSIDE_TABLES[name] for name in self.tuned.inside}

    def run(self) -> dict[str, Any]:
        with without_notes():
            return super().run()

    def make(self) -> Part:
        models, subject, tuned = self.models, self.tuned.subject, self.tuned
        found = self._tuned_models()
        task, device = found[0].task, models.plan.training.device
        text = models.data.analysed
        options = models.plan.analysis.passes(
            max_length=found[0].max_length, corruption=models.objective(subject.recipe)
        )
        tables = inside_view(
            tuned.load(),
            [one.load(device) for one in found],
            task,
            models.own(StudyTasks).data(tuned.entry),
            untrained=models.load(subject.before_training()),
            pretraining=text,
            tagged=text if "upos" in text.columns else None,
            options=options,
            sizes=InsideSizes(),
            seeds=[one.seed for one in found],
            only=tuned.inside,
        )
        shared = self.tuned.tuned_columns(task.shape, int(found[0].facts["examples"]))
        return {name: frame.assign(**shared) for name, frame in tables.items()}

    def _tuned_models(self) -> list[TunedModel]:
        config = self.tuned.config
        home = self.tuned.folder / self.tuned.entry.name / config.way
        return [load_tuned(home / f"seed-{seed}") for seed in config.seeds]


def _is_last(stage: Tune, after: Tune | None) -> bool:
    return stage.tuned.method in FROZEN_METHODS and (after is None or not _share_features(stage.tuned, after.tuned))


def _share_features(first: TunedSubject, second: TunedSubject) -> bool:
    return first.method == second.method in FROZEN_METHODS and first.model_key == second.model_key
