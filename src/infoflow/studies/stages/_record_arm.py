"""Loss change allocation of an arm of retrieval: recorded while it trains, or in a second training to its weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infoflow.dynamics import TABLES
from infoflow.flow import agree
from infoflow.foundation import current_display, digest
from infoflow.results import KEYS, Subject, TableSchema

from .._arm_recording import RECORDED, arm_recorders, is_recorded, is_recording_asked, recording_key
from .._retrieval_arms import arm_models, relative_cost
from .._study_models import StudyModels
from .._workbench import Part
from ._arm_stage import AbstractArmStage
from ._stage import AbstractStage
from ._train_arm import settle_arm_key

_AGAIN = "reading-again"


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordArm(AbstractArmStage):
    """The recording of the training that counts of an arm."""

    kind = "record-arm"

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[RecordArm]":
        asked = [model for model in arm_models(models) if is_recording_asked(model)]
        return [cls(model=model, needs=(settle_arm_key(model),)) for model in asked]

    @property
    def estimate(self) -> float:
        """A training that is still to come records itself."""
        if not self.model.is_trained():
            return 0.001
        training = self.model.models.plan.training.updates
        return 0.001 if self.is_done() else relative_cost(self.model) * self.model.config.updates / training

    @cached_property
    def key(self) -> str:
        return digest(["record-arm", settle_arm_key(self.model), recording_key(self.model)])

    @property
    def label(self) -> str:
        return f"record {self.model.name}"

    def is_done(self) -> bool:
        return self.is_settled() and agree(is_recorded(self.counts))

    def run(self) -> dict[str, Any]:
        """Train once more with the recorder, unless the training that counts has recorded."""
        if self.is_done():
            return {}
        counts = self.counts
        current_display().note(
            f"Training {counts.name} once more: it was trained before its loss changes were to be recorded."
        )
        folder = counts.models.bench.path(_AGAIN, recording_key(counts))
        counts.train_again(folder, lambda module: arm_recorders(counts, module, folder))
        return {}

    def tables(self) -> Part:
        keys = Subject(recipe=self.model.recipe).keys()
        part = self.model.models.bench.read(RECORDED, recording_key(self.counts))
        return {name: frame.assign(**keys) for name, frame in part.items() if len(frame)}

    def schemas(self) -> dict[str, TableSchema]:
        return {schema.name: schema.with_keys(*KEYS) for schema in TABLES}
