"""Train a model of a study on in its domain, or one from scratch there."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infoflow.foundation import digest

from .._specialised import Specialised, specialised
from .._study_domain import SCRATCH
from .._study_models import StudyModels
from ._model_stage import AbstractModelStage
from ._record import training_estimate
from ._stage import AbstractStage
from ._train import train_stage_key


@dataclass(frozen=True, kw_only=True, eq=False)
class Specialise(AbstractModelStage):
    """One phase of one model."""

    kind = "specialise"
    recorded = "specialised"
    model: Specialised

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Specialise]":
        """For each model of the domain all phases, each behind the one before."""
        if not models.plan.domain.on:
            return []
        return [cls.of(one) for recipe in models.domain.recipes for one in specialised(models, recipe)]

    @classmethod
    def of(cls, model: Specialised) -> "Specialise":
        """The stage of a model, behind what it begins from."""
        if model.strategy == SCRATCH:
            return cls(model=model)
        earlier = specialise_key(model.before) if model.before else train_stage_key(model.models, model.recipe)
        return cls(model=model, needs=(earlier,))

    @property
    def estimate(self) -> float:
        plan = self.model.models.plan
        return training_estimate(self.model.recipe) * self.model.config.updates / plan.training.updates

    @cached_property
    def key(self) -> str:
        return specialise_key(self.model)

    @property
    def label(self) -> str:
        return f"specialise {self.model.name}"

    @property
    def trains(self) -> Specialised:
        return self.model

    def train(self) -> dict[str, Any]:
        return self.model.train()


def specialise_key(model: Specialised) -> str:
    """Key of the stage: two recipes may come to the same weights."""
    return digest(["specialise", model.key, model.name])
