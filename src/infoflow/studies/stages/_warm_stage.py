"""What arms of retrieval begin with, trained before all of them."""

import shutil
from dataclasses import dataclass
from typing import Any

from infoflow.flow import is_first, wait_for_all

from .._arm_beginnings import WarmModel
from .._retrieval_arms import relative_cost
from .._warmed_reader import WarmedReader
from ._model_stage import AbstractModelStage


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractWarmStage(AbstractModelStage):
    """One model of one seed; it is never continued from, so its checkpoints go."""

    model: WarmModel | WarmedReader

    @property
    def estimate(self) -> float:
        return relative_cost(self.model) * self.model.config.updates / self.model.models.plan.training.updates

    @property
    def label(self) -> str:
        return f"warm {self.model.name}"

    @property
    def trains(self) -> WarmModel | WarmedReader:
        return self.model

    def train(self) -> dict[str, Any]:
        result = self.model.train()
        facts = {"updates": result.updates, "cpu_seconds": result.cpu_seconds}
        if is_first():
            shutil.rmtree(self.model.folder / "checkpoints", ignore_errors=True)
        wait_for_all()
        return facts
