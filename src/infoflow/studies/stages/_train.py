"""Train one model of a study, and put it where people find it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from infoflow.flow import agree, is_first, wait_for_all
from infoflow.foundation import digest
from infoflow.results import KEYS, Column, Recipe, Subject, TableSchema

from .._learning import LEARNING_CURVES, learning_curve
from .._study_models import TRAINED, StudyModels
from .._weights import check_target, discard, is_intact, is_published, keep_sums, publish
from .._workbench import Part
from ._record import recorders, training_estimate
from ._stage import AbstractStage

TRAINING_RUNS = TableSchema(
    name="training_runs",
    version=1,
    description="what each model was trained on and what it cost",
    columns=(
        *KEYS,
        Column(name="updates", dtype="int64", unit="updates", description="optimiser steps"),
        Column(name="source_tokens", dtype="int64", unit="tokens", description="source tokens read, padding excluded"),
        Column(name="target_tokens", dtype="int64", unit="tokens", description="target tokens read by a decoder"),
        Column(name="supervised_tokens", dtype="int64", unit="tokens", description="tokens that the loss looked at"),
        Column(name="seconds", dtype="float64", unit="s", description="wall time of training, interruptions excluded"),
        Column(name="cpu_seconds", dtype="float64", unit="s", description="CPU time of the whole training"),
        Column(name="parameters", dtype="int64", unit="", description="number of parameters"),
        Column(name="validation_loss", dtype="float64", unit="nats/token", description="loss on the validation part"),
    ),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Train(AbstractStage):
    """One recipe, from first weights to a folder under `models/`."""

    kind = "train"
    models: StudyModels
    recipe: Recipe

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Train]":
        """One for each recipe, the longest first; teachers before those that learn from them."""
        every = [cls(models=models, recipe=recipe, needs=_teachers(models, recipe)) for recipe in models.plan.recipes()]
        return sorted(every, key=lambda stage: (bool(stage.needs), -stage.estimate))

    @property
    def estimate(self) -> float:
        return training_estimate(self.recipe)

    @cached_property
    def key(self) -> str:
        return train_stage_key(self.models, self.recipe)

    @property
    def label(self) -> str:
        return f"train {self.recipe.name}"

    def is_done(self) -> bool:
        """Whether the model is trained, its weights are those that training left, and people find it.

        Raises:
            UserError: Where the model is to be published lies something else.
        """
        self._forget_damaged()
        models, recipe = self.models, self.recipe
        return agree(models.is_trained(recipe) and is_published(models.weights(recipe), models.published(recipe)))

    def run(self) -> dict[str, Any]:
        self._forget_damaged()
        models, recipe = self.models, self.recipe
        facts = models.bench.facts(TRAINED, models.train_key(recipe), self._train)
        if is_first():
            publish(models.weights(recipe), models.published(recipe), recipe.name)
        wait_for_all()
        return facts

    def facts(self) -> dict[str, Any]:
        """What the training read and cost, of a model that is trained."""
        return self.models.bench.read_facts(TRAINED, self.models.train_key(self.recipe))

    def tables(self) -> Part:
        keys = Subject(recipe=self.recipe).keys()
        curve = learning_curve(self.models.log(self.recipe))
        return {
            TRAINING_RUNS.name: pd.DataFrame([{**keys, **self.facts()}]),
            LEARNING_CURVES.name: curve.assign(**keys),
        }

    def schemas(self) -> dict[str, TableSchema]:
        return {schema.name: schema for schema in (TRAINING_RUNS, LEARNING_CURVES)}

    def _forget_damaged(self) -> None:
        """Forget a training whose weights are no longer what it left: it is done again from its last checkpoint."""
        models, recipe = self.models, self.recipe
        if is_first():
            weights = models.weights(recipe)
            check_target(weights, models.published(recipe))
            if models.is_trained(recipe) and not is_intact(weights):
                discard(weights, recipe.name)
                models.bench.remove(TRAINED, models.train_key(recipe))
        wait_for_all()

    def _train(self) -> dict[str, Any]:
        models, recipe = self.models, self.recipe
        folder = models.weights(recipe).parent
        hooks = recorders(models, recipe, folder)
        module, result = models.train_into(recipe, folder, hooks, snapshots=models.keeping())
        losses = result.validation_losses
        if is_first():
            keep_sums(models.weights(recipe))
        return {
            "updates": result.updates,
            "source_tokens": result.source_tokens,
            "target_tokens": result.target_tokens,
            "supervised_tokens": result.supervised_tokens,
            "seconds": result.seconds,
            "cpu_seconds": result.cpu_seconds,
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            "validation_loss": models.objective(recipe).weighted(losses) if losses else math.nan,
        }


def _teachers(models: StudyModels, recipe: Recipe) -> tuple[str, ...]:
    teacher = models.teacher(recipe)
    return () if teacher is None else (train_stage_key(models, teacher),)


def train_stage_key(models: StudyModels, recipe: Recipe) -> str:
    """Key of the stage: two recipes may train to the same weights, and are published under two names."""
    return digest(["train", models.train_key(recipe), recipe.name])
