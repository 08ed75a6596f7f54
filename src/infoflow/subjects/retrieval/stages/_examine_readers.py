"""Stages that examine the trained readers of `[retrieval]`: what they store, find and read, and how they learned it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from infoflow.flow import Failures, agree
from infoflow.foundation import current_display, digest
from infoflow.results import QUERY_LEAKAGE, RETRIEVAL_SCORES, UNTRAINED, Subject
from infoflow.studies._result_cache import Computed, Part, ResultCache, Schemas
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._stage import AbstractKept, AbstractMeasuring, AbstractStage, AbstractTableStage, OfModels
from infoflow.subjects.allocation.measures import TABLES

from ..measures import RETRIEVAL_COURSE, later_answers
from ..objectives._retrieval_lm import RetrieveLearned
from ._arm_measures import MEASURED, ArmInside, arm_course, measured_of
from ._first_readers import text_of
from ._retrieval_arms import ArmModel, arm_models
from ._train_readers import (
    RECORDED,
    OfArm,
    SettleArm,
    TrainArm,
    arm_recorders,
    is_recorded,
    is_recording_asked,
    recording_key,
)

_VERSION = 1  # increase when the same weights yield a different course


@dataclass(frozen=True, kw_only=True, eq=False)
class CountQuestions(OfModels, AbstractTableStage):
    """Count the test questions that readers of real text also see in training; a generated world has none."""

    kind = "count"
    named = "count leaked questions"
    stored = "leakage-of-questions"
    makes = (QUERY_LEAKAGE,)
    guess = 0.01
    runs_models = False

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[CountQuestions]":
        section = models.plan.retrieval
        return [cls(models=models)] if section.on and section.corpus else []

    def depends(self) -> list[Any]:
        return ["leakage-of-questions", QUERY_LEAKAGE.version, text_of(self.models.plan).digest]

    def make(self) -> pd.DataFrame:
        found = text_of(self.models.plan).leakage
        if found.leaked:
            current_display().note(str(found))
        return found.table()


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordArm(OfArm, AbstractKept):
    """Loss change allocation of a training, recorded while it runs or in a second training to the same weights."""

    kind = "record-arm"
    named = "record {self.model.name}"
    stored = RECORDED
    makes = TABLES

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[RecordArm]":
        recorded = [model for model in arm_models(models) if is_recording_asked(model)]
        return [cls(model=model, needs=(SettleArm(model=model).key,)) for model in recorded]

    @property
    def estimate(self) -> float:
        """A training that has not started yet is recorded while it runs, at no extra cost."""
        if not self.model.is_trained() or self.is_done():
            return 0.001
        return TrainArm(model=self.model).estimate

    def depends(self) -> list[Any]:
        return ["record-arm", SettleArm(model=self.model).key, recording_key(self.model)]

    @property
    def content(self) -> str:
        return recording_key(self.counts)

    def is_done(self) -> bool:
        return self.is_settled() and agree(is_recorded(self.counts))

    def run(self) -> dict[str, Any]:
        """Train again with the recorder, unless the training was recorded."""
        if self.is_done():
            return {}
        counts = self.counts
        current_display().note(f"Training {counts.name} again to record its loss changes.")
        folder = self.cache.path("reading-again", self.content)
        counts.train_again(folder, lambda module: arm_recorders(counts, module, folder))
        return {}

    def tables(self) -> Part:
        part = self.cache.read(self.stored, self.content)
        return self._with_columns({name: frame for name, frame in part.items() if len(frame)})


@dataclass(frozen=True, kw_only=True, eq=False)
class FollowArm(OfArm, AbstractTableStage):
    """What one model knew at the kept updates of its training; a model without its checkpoints is trained again."""

    kind = "follow-arm"
    named = "follow {self.model.name}"
    stored = "followed"
    makes = (RETRIEVAL_COURSE,)

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[FollowArm]":
        """One stage per model, after the recording, since a second training for it also keeps the checkpoints."""
        recorded = {stage.model.recipe: stage.key for stage in before if isinstance(stage, RecordArm)}
        wanted = [model for model in arm_models(models) if model.wanted]
        return [cls(model=one, needs=(recorded.get(one.recipe, SettleArm(model=one).key),)) for one in wanted]

    @property
    def estimate(self) -> float:
        looks = 0.05 * len(self.model.wanted)
        again = self.model.is_trained() and self.model.lacks_checkpoints()
        return looks + TrainArm(model=self.model).estimate if again else looks

    def depends(self) -> list[Any]:
        return ["follow-arm", SettleArm(model=self.model).key, self.model.wanted, _VERSION]

    @property
    def content(self) -> str:
        return digest([_VERSION, RETRIEVAL_COURSE.version, self.counts.key, self.counts.wanted])

    def is_done(self) -> bool:
        return self.is_settled() and super().is_done()

    def run(self) -> dict[str, Any]:
        counts = self.counts
        if agree(counts.lacks_checkpoints()):
            current_display().note(f"Training {counts.name} again: its checkpoints are missing.")
            counts.train_again(self.cache.path("keeping-again", self.content))
        return super().run()

    def make(self) -> pd.DataFrame:
        return arm_course(self.counts)


@dataclass(frozen=True, kw_only=True, eq=False)
class JoinArms(AbstractTableStage):
    """How well utility and likelihood predict later answers in one seed; the rows are about its learned retriever."""

    kind = "join-arms"
    named = "join arms of seed {self.learned.seed}"
    stored = "followed-joined"
    makes = (RETRIEVAL_SCORES,)
    runs_models = False
    followed: Sequence[FollowArm]  # stages of all models of one seed

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[JoinArms]":
        """One stage for each seed that has a learned retriever."""
        stages = [stage for stage in before if isinstance(stage, FollowArm)]
        seeds = dict.fromkeys(stage.model.seed for stage in stages if stage.model.arm == RetrieveLearned.name)
        of_seed = {seed: [stage for stage in stages if stage.model.seed == seed] for seed in seeds}
        return [cls(followed=own, needs=tuple(stage.key for stage in own)) for own in of_seed.values()]

    @property
    def learned(self) -> ArmModel:
        return next(stage.model for stage in self.followed if stage.model.arm == RetrieveLearned.name)

    @property
    def cache(self) -> ResultCache:
        return self.learned.models.bench

    def depends(self) -> list[Any]:
        return ["join-arms", _VERSION, [stage.key for stage in self.followed]]

    def columns(self) -> Mapping[str, Any]:
        return Subject(recipe=self.learned.recipe).keys()

    def make(self) -> pd.DataFrame:
        courses = [stage.tables()[RETRIEVAL_COURSE.name] for stage in self.followed]
        return later_answers(pd.concat(courses, ignore_index=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureArm(OfArm, AbstractMeasuring):
    """All tables of one model, after training or before its first update.

    Before training, all models of a seed share one reader, whose tables are computed once. An untrained variant is
    measured as the model from which it starts.
    """

    kind = "examine"
    named = "examine {self._subject.label}"
    stored = "examined"
    trained: bool

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[MeasureArm]":
        """Trained models, each after its rate is settled; then untrained ones in sequence, which share results."""
        settled = {arm: SettleArm(model=arm).key for arm in arm_models(models)}
        stages = [cls(model=arm, trained=True, needs=(key,)) for arm, key in settled.items()]
        for arm, key in settled.items():
            needs = (key,) if stages[-1].trained else (key, stages[-1].key)
            stages.append(cls(model=arm, trained=False, needs=needs))
        return stages

    @property
    def estimate(self) -> float:
        """About 3.5 minutes for a small world on a CPU, and a third of that before training."""
        return 3.5 * len(self._names) / len(MEASURED) * (1.0 if self.trained else 0.35)

    def depends(self) -> list[Any]:
        versions = [_version(name) for name in self._names]
        return ["examine", SettleArm(model=self.model).key, self.trained, self._names, versions]

    def check(self) -> None:
        self.require_searches()

    def is_done(self) -> bool:
        if self.trained and not (self.is_settled() and agree(self.counts.is_trained())):
            return False
        return super().is_done()

    @property
    def counts(self) -> ArmModel:
        """The model that is measured."""
        return super().counts if self.trained else self.model

    def columns(self) -> Mapping[str, Any]:
        return self._subject.keys()

    def plain_schemas(self) -> Schemas:
        return {MEASURED[name].schema.name: MEASURED[name].schema for name in self._names}

    def table_keys(self) -> dict[str, str]:
        counts = self.counts
        return {
            MEASURED[name].schema.name: digest([_version(name), *self._state(counts, name)]) for name in self._names
        }

    def make(self, names: list[str]) -> Computed:
        inside = ArmInside(self.counts, self.trained)
        failures = Failures(self._subject.label, keep_going=len(self._names) > 1)
        tables: Part = {}
        for name in self._names:
            schema = MEASURED[name].schema
            if schema.name in names:
                with failures.of(schema):
                    tables[schema.name] = MEASURED[name].of(inside)
                num = len(tables.get(schema.name, ()))
                current_display().note(f"{schema.name} of {self._subject.label}: {num:,} rows")
        return Computed(tables=tables, failures=failures.listed())

    @property
    def _subject(self) -> Subject:
        return Subject(recipe=self.model.recipe, update=None if self.trained else UNTRAINED)

    @cached_property
    def _names(self) -> list[str]:
        return measured_of(self.model)

    def _state(self, counts: ArmModel, name: str) -> list[Any]:
        if self.trained:
            return ["trained", counts.key]
        return ["untrained", counts.reader_key if MEASURED[name].of_reader else counts.first_key]


def _version(name: str) -> list[Any]:
    measure = MEASURED[name]
    return [measure.schema.name, measure.schema.version, measure.version]
