"""Reading warm start: the first reader of a seed learns to read another world, before all arms."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import current_display, digest

from .._retrieval_arms import arm_models, relative_cost
from .._study_models import StudyModels
from .._warmed_reader import WarmedReader
from ._model_stage import AbstractModelStage
from ._stage import AbstractStage


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmReader(AbstractModelStage):
    """The first reader of one seed, for all its arms."""

    kind = "warm-reader"
    recorded = "warmed-reader"
    model: WarmedReader

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[WarmReader]":
        """One for each seed, where the plan has such updates."""
        begun = [arm.warmed for arm in arm_models(models) if arm.warmed is not None]
        return [cls(model=model) for model in {model.key: model for model in begun}.values()]

    @property
    def estimate(self) -> float:
        return relative_cost(self.model) * self.model.config.updates / self.model.models.plan.training.updates

    @cached_property
    def key(self) -> str:
        return warm_reader_key(self.model)

    @property
    def label(self) -> str:
        return f"warm {self.model.name}"

    @property
    def trains(self) -> WarmedReader:
        return self.model

    def train(self) -> dict[str, Any]:
        started = time.process_time()
        module, result = self.model.train()
        cpu = time.process_time() - started
        reads = self.model.reads(module)
        if is_first():
            shutil.rmtree(self.model.folder / "checkpoints", ignore_errors=True)
        wait_for_all()
        if reads is not None:
            current_display().note(
                f"{self.model.name} answers {reads:.3f} of the questions about facts of another world that it was not "
                f"asked for, with the right passage, after {result.updates:,} updates."
            )
        return {"updates": result.updates, "cpu_seconds": round(cpu, 3), "reads": reads}


def warm_reader_key(model: WarmedReader) -> str:
    """Key of the stage."""
    return digest(["warm-reader", model.key])
