"""Warm start of a retriever: the inverse cloze task on the passages of the world of facts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from infoflow.foundation import digest

from .._arm_beginnings import WarmModel
from .._retrieval_arms import arm_models
from .._study_models import StudyModels
from ._stage import AbstractStage
from ._warm_stage import AbstractWarmStage


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmRetriever(AbstractWarmStage):
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

    @cached_property
    def key(self) -> str:
        return warm_stage_key(self.model)


def warm_stage_key(model: WarmModel) -> str:
    """Key of the stage."""
    return digest(["warm", model.key])
