"""What an arm of retrieval holds, finds and reads: the model that counts, and before its first update."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from infoflow.flow import Failure, Failures, agree
from infoflow.foundation import current_display, digest
from infoflow.results import KEYS, UNTRAINED, Subject, TableSchema

from .._arm_measures import MEASURED, ArmInside, measured_of
from .._retrieval_arms import ArmModel, arm_models, at_half_rate, plain_arms
from .._study_models import StudyModels
from .._workbench import Computed, Part
from ._stage import AbstractStage
from ._train_arm import settle_arm_key

_EXAMINED = "examined"


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureArm(AbstractStage):
    """All tables of one arm. Before training all arms of a seed have one reader: what is said of it is computed once.

    Variants are measured untrained like the arm that they begin as.
    """

    kind = "examine"
    model: ArmModel  # at the whole rate
    trained: bool

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[MeasureArm]":
        """The trained ones, each behind the decision which model counts; then those before training, one behind the
        other, since they share results."""
        arms = arm_models(models)
        stages = [cls(model=arm, trained=True, needs=(settle_arm_key(arm),)) for arm in arms]
        for arm in arms:
            needs = [settle_arm_key(arm), *([stages[-1].key] if not stages[-1].trained else [])]
            stages.append(cls(model=arm, trained=False, needs=tuple(needs)))
        return stages

    @property
    def estimate(self) -> float:
        """Of a small world on a CPU: three minutes and a half, a third of it before training."""
        return 3.5 * len(self._names) / len(MEASURED) * (1.0 if self.trained else 0.35)

    @cached_property
    def key(self) -> str:
        versions = [_version(name) for name in self._names]
        return digest(["examine", settle_arm_key(self.model), self.trained, self._names, versions])

    @property
    def label(self) -> str:
        return f"examine {self._subject.label}"

    def is_done(self) -> bool:
        if self.trained and not agree(all(arm.is_trained() for arm in [*plain_arms(self._models), self.model])):
            return False
        if self.trained and not agree(self.counts.is_trained()):
            return False
        return agree(not self._models.bench.missing(_EXAMINED, self._keys))

    def run(self) -> dict[str, Any]:
        self._models.bench.each_table(_EXAMINED, self._keys, self._plain, self._measure)
        return {"failures": len(self.failures())}

    def tables(self) -> Part:
        stored = self._models.bench.read_each(_EXAMINED, self._keys)
        return {name: frame.assign(**self._subject.keys()) for name, frame in stored.items()}

    def failures(self) -> list[Failure]:
        return self._models.bench.failures(_EXAMINED, self._keys)

    def schemas(self) -> dict[str, TableSchema]:
        return {name: schema.with_keys(*KEYS) for name, schema in self._plain.items()}

    @property
    def counts(self) -> ArmModel:
        """The model that is measured."""
        return replace(self.model, halved=at_half_rate(self._models)) if self.trained else self.model

    @property
    def _models(self) -> StudyModels:
        return self.model.models

    @property
    def _subject(self) -> Subject:
        return Subject(recipe=self.model.recipe, update=None if self.trained else UNTRAINED)

    @cached_property
    def _names(self) -> list[str]:
        return measured_of(self.model)

    @property
    def _plain(self) -> dict[str, TableSchema]:
        return {MEASURED[name].schema.name: MEASURED[name].schema for name in self._names}

    @property
    def _keys(self) -> dict[str, str]:
        """What each table depends on."""
        counts = self.counts
        return {
            MEASURED[name].schema.name: digest([_version(name), *self._state(counts, name)]) for name in self._names
        }

    def _state(self, counts: ArmModel, name: str) -> list[Any]:
        if self.trained:
            return ["trained", counts.key]
        return ["untrained", counts.reader_key if MEASURED[name].of_reader else counts.first_key]

    def _measure(self, missing: list[str]) -> Computed:
        inside = ArmInside(self.counts, self.trained)
        failures = Failures(self._subject.label, keep_going=len(self._names) > 1)
        tables: Part = {}
        for name in self._names:
            table = MEASURED[name].schema.name
            if table in missing:
                with failures.of(_Measured(table)):
                    tables[table] = MEASURED[name].of(inside)
                current_display().note(f"{table} of {self._subject.label}: {len(tables.get(table, ())):,} rows")
        return Computed(tables=tables, failures=failures.listed())


class _Measured(NamedTuple):
    name: str


def _version(name: str) -> list[Any]:
    measure = MEASURED[name]
    return [measure.schema.name, measure.schema.version, measure.version]
