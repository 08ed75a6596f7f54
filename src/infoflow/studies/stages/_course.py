"""What all checkpoints of a model together say: when its layers settle, when heads take their roles, what comes at
once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from infoflow.foundation import digest
from infoflow.over_training import COURSE_TABLES, course_tables
from infoflow.results import Recipe, TableSchema

from .._study_models import StudyModels
from .._workbench import Part, stacked
from ._measure_checkpoint import MeasureCheckpoint
from ._stage import AbstractStage
from ._table_stage import AbstractTableStage


@dataclass(frozen=True, kw_only=True, eq=False)
class Course(AbstractTableStage):
    """One model over its training; cheap, from the tables of its checkpoints."""

    kind = "course"
    runs_models = False
    recorded = "courses"
    recipe: Recipe
    checkpoints: Sequence[MeasureCheckpoint]

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Course]":
        measured: dict[Recipe, list[MeasureCheckpoint]] = {}
        for stage in before:
            if isinstance(stage, MeasureCheckpoint):
                measured.setdefault(stage.subject.recipe, []).append(stage)
        return [
            cls(models=models, recipe=recipe, checkpoints=stages, needs=tuple(stage.key for stage in stages))
            for recipe, stages in measured.items()
        ]

    @property
    def estimate(self) -> float:
        return 0.02

    @cached_property
    def key(self) -> str:
        versions = [[schema.name, schema.version] for schema in COURSE_TABLES]
        return digest(["course", self.recipe.name, versions, [stage.key for stage in self.checkpoints]])

    @property
    def label(self) -> str:
        return f"follow {self.recipe.name} over its training"

    def schemas(self) -> dict[str, TableSchema]:
        return {schema.name: schema for schema in COURSE_TABLES}

    def make(self) -> Part:
        rows = stacked(stage.rows() for stage in self.checkpoints)
        return course_tables(rows, float(self.models.plan.training.warmup_updates))
