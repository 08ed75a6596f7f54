"""Count the questions of the test that readers of real text are asked in training too."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from infoflow.foundation import current_display, digest
from infoflow.results import TableSchema
from infoflow.retrieval import QUERY_LEAKAGE

from .._arm_beginnings import text_of
from .._study_models import StudyModels
from .._workbench import Part
from ._stage import AbstractStage
from ._table_stage import AbstractTableStage


@dataclass(frozen=True, kw_only=True, eq=False)
class CountQuestions(AbstractTableStage):
    """The questions of a test against those of training; a generated world has none in common."""

    kind = "count"
    runs_models = False
    recorded = "leakage-of-questions"

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[CountQuestions]":
        asked = models.plan.retrieval
        return [cls(models=models)] if asked.on and asked.corpus else []

    @cached_property
    def key(self) -> str:
        return digest(["leakage-of-questions", QUERY_LEAKAGE.version, text_of(self.models.plan).digest])

    @property
    def label(self) -> str:
        return "count leaked questions"

    @property
    def estimate(self) -> float:
        return 0.01

    def schemas(self) -> dict[str, TableSchema]:
        return {QUERY_LEAKAGE.name: QUERY_LEAKAGE}

    def make(self) -> Part:
        found = text_of(self.models.plan).leakage
        if found.leaked:
            current_display().note(str(found))
        return {QUERY_LEAKAGE.name: found.table()}
