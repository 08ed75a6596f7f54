"""Count the test texts of a task that stand in what a study's models are trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from infoflow.adaptation import TASK_LEAKAGE, leakage
from infoflow.foundation import current_display, digest
from infoflow.results import TableSchema

from .._study_models import StudyModels
from .._tuning_plan import TunePlan
from .._workbench import Part
from ._stage import AbstractStage
from ._table_stage import AbstractTableStage


@dataclass(frozen=True, kw_only=True, eq=False)
class CountLeakage(AbstractTableStage):
    """One task against the general corpus, the domain's, and its own training part."""

    kind = "count"
    runs_models = False
    recorded = "leakage"
    asked: TunePlan

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[CountLeakage]":
        return [cls(models=models, asked=asked) for asked in models.plan.tune]

    @cached_property
    def key(self) -> str:
        models = self.models
        domain = [models.domain.key(name) for name in models.plan.domain.strategies] if self._has_domain else []
        own = [models.tasks.digest(self.asked), self.asked.name]
        return digest(["leakage", TASK_LEAKAGE.version, models.data_key, own, domain])

    @property
    def label(self) -> str:
        return f"count leakage of {self.asked.name}"

    @property
    def estimate(self) -> float:
        return 0.01

    @property
    def _has_domain(self) -> bool:
        return bool(self.models.plan.domain.corpus and self.models.domain.recipes)

    def schemas(self) -> dict[str, TableSchema]:
        return {TASK_LEAKAGE.name: TASK_LEAKAGE}

    def make(self) -> Part:
        models = self.models
        others = {"pretraining": models.data.train}
        if self._has_domain:
            others["domain"] = models.domain.data(models.plan.domain.strategies[0]).train
        found = leakage(models.tasks.data(self.asked), others)
        for row in found[found["same"] > 0].to_dict("records"):
            current_display().note(
                f"{row['task']}: {row['same']:,} of {row['texts']:,} test texts stand in {row['within']} text too."
            )
        return {TASK_LEAKAGE.name: found}
