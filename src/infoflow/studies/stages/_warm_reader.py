"""Reading warm start: the first reader of a seed learns to read another world, before all arms."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infoflow.foundation import current_display, digest

from .._retrieval_arms import arm_models
from .._study_models import StudyModels
from .._warmed_reader import WarmedReader
from ._stage import AbstractStage
from ._warm_stage import AbstractWarmStage


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmReader(AbstractWarmStage):
    """The first reader of one seed, for all its arms."""

    kind = "warm-reader"
    recorded = "warmed-reader"
    model: WarmedReader

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[WarmReader]":
        """One for each seed, where the plan has such updates."""
        begun = [arm.warmed for arm in arm_models(models) if arm.warmed is not None]
        return [cls(model=model) for model in {model.key: model for model in begun}.values()]

    @cached_property
    def key(self) -> str:
        return warm_reader_key(self.model)

    def train(self) -> dict[str, Any]:
        facts, reads = super().train(), self.model.reads()
        if reads is not None:
            current_display().note(
                f"{self.model.name} answers {reads:.3f} of the questions about facts of another world that it was not "
                f"asked for, with the right passage, after {facts['updates']:,} updates."
            )
        return facts | {"reads": reads}


def warm_reader_key(model: WarmedReader) -> str:
    """Key of the stage."""
    return digest(["warm-reader", model.key])
