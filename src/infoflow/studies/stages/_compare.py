"""Distances between two measured models, from the samples that measuring left."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infoflow.flow import agree, compare_samples
from infoflow.foundation import digest
from infoflow.results import PAIR_KEYS, TableSchema, pair_values

from .._study_models import StudyModels
from .._workbench import Part
from ._measure import AbstractMeasureStage, MeasureModel
from ._pairs import model_pairs, pair_key
from ._stage import AbstractStage

_COMPARED = "compared"


@dataclass(frozen=True, kw_only=True, eq=False)
class Compare(AbstractStage):
    """One pair, both trained or both not."""

    kind = "compare"
    first: AbstractMeasureStage
    second: AbstractMeasureStage
    part: str  # what the numbers depend on: the key of their part

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Compare]":
        measuring = {stage.subject: stage for stage in before if isinstance(stage, MeasureModel)}
        pairs = [(measuring[a], measuring[b]) for a, b in model_pairs(models.plan, list(measuring))]
        stages: list[Compare] = []
        alike: dict[str, str] = {}  # the first of equal pairs: the others wait for it, and find what it left
        for a, b in pairs:
            part = pair_key(models, a.subject, b.subject)
            same = (alike[part],) if part in alike else ()
            stages.append(cls(first=a, second=b, part=part, needs=(a.key, b.key, *same)))
            alike.setdefault(part, stages[-1].key)
        return stages

    @cached_property
    def key(self) -> str:
        return digest(["compare", self.part, self.first.subject.name, self.second.subject.name])

    @property
    def label(self) -> str:
        return f"compare {self.first.subject.label} and {self.second.subject.label}"

    def is_done(self) -> bool:
        return agree(self._bench.done(_COMPARED, self.part))

    def run(self) -> dict[str, Any]:
        measures = self.first.pair_measures
        schemas = {measure.name: measure.table for measure in measures}
        self._bench.tables(
            _COMPARED, self.part, schemas, lambda: compare_samples(measures, self.first.sample(), self.second.sample())
        )
        return {}

    def tables(self) -> Part:
        keys = pair_values(self.first.subject, self.second.subject)
        return {name: frame.assign(**keys) for name, frame in self._bench.read(_COMPARED, self.part).items()}

    def schemas(self) -> dict[str, TableSchema]:
        return {measure.name: measure.table.with_keys(*PAIR_KEYS) for measure in self.first.pair_measures}

    @property
    def _bench(self):
        return self.first.bench
