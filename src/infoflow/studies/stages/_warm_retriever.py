"""Warm start of a retriever: the inverse cloze task on the passages of the world of facts."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import digest

from .._arm_beginnings import WarmModel
from .._retrieval_arms import arm_models, relative_cost
from .._study_models import StudyModels
from ._model_stage import AbstractModelStage
from ._stage import AbstractStage


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmRetriever(AbstractModelStage):
    """The retriever of one seed, for all its arms that have one."""

    kind = "warm"
    recorded = "warmed"
    model: WarmModel

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[WarmRetriever]":
        """One for each retriever that an arm begins with."""
        if not models.plan.retrieval.warm_updates:
            return []
        begun = [arm.warm for arm in arm_models(models) if arm.warm is not None and arm.variant != "cold"]
        return [cls(model=model) for model in {model.key: model for model in begun}.values()]

    @property
    def estimate(self) -> float:
        return relative_cost(self.model) * self.model.config.updates / self.model.models.plan.training.updates

    @cached_property
    def key(self) -> str:
        return warm_stage_key(self.model)

    @property
    def label(self) -> str:
        return f"warm {self.model.name}"

    @property
    def trains(self) -> WarmModel:
        return self.model

    def train(self) -> dict[str, Any]:
        started = time.process_time()
        result = self.model.train()
        if is_first():
            shutil.rmtree(self.model.folder / "checkpoints", ignore_errors=True)
        wait_for_all()
        return {"updates": result.updates, "cpu_seconds": round(time.process_time() - started, 3)}


def warm_stage_key(model: WarmModel) -> str:
    """Key of the stage."""
    return digest(["warm", model.key])
