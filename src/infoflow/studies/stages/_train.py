"""Train one model of a study and publish it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from infoflow._subjects import provided
from infoflow.flow import PassOptions, agree, is_first, wait_for_all
from infoflow.results import LEARNING_CURVES, TRAINING_RUNS, Recipe
from infoflow.training import TrainingHook, read_log

from .._study_models import TRAINED, StudyModels
from .._weights import check_target, discard, is_intact, is_published, keep_sums, publish
from .._workbench import Part
from ._stage import AbstractFactStage, AbstractStage, OfRecipe

_POINTS = 60


@dataclass(frozen=True, kw_only=True, eq=False)
class Train(OfRecipe, AbstractFactStage):
    """One recipe, from initial weights to a folder under `models/`."""

    kind = "train"
    named = "train {self.recipe.name}"
    stored = TRAINED
    makes = (TRAINING_RUNS, LEARNING_CURVES)

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Train]":
        """One stage for each recipe, longest first; teachers precede their students."""
        every = [
            cls(models=models, recipe=recipe, needs=cls._teachers(models, recipe)) for recipe in models.plan.recipes()
        ]
        return sorted(every, key=lambda stage: (bool(stage.needs), -stage.estimate))

    @property
    def estimate(self) -> float:
        return training_estimate(self.recipe)

    def depends(self) -> list[Any]:
        """Includes the name, since two recipes may train to the same weights but are published under two names."""
        return ["train", self.content, self.recipe.name]

    @property
    def content(self) -> str:
        return self.models.train_key(self.recipe)

    def is_done(self) -> bool:
        """Whether the model is trained, its weights are as training left them, and it is published.

        Raises:
            UserError: The published folder holds something else.
        """
        self._forget_damaged()
        models, recipe = self.models, self.recipe
        return agree(models.is_trained(recipe) and is_published(models.weights(recipe), models.published(recipe)))

    def run(self) -> dict[str, Any]:
        self._forget_damaged()
        models, recipe, facts = self.models, self.recipe, super().run()
        if is_first():
            publish(models.weights(recipe), models.published(recipe), recipe.name)
        wait_for_all()
        return facts

    def tables(self) -> Part:
        """Data and cost of the training, and its losses."""
        keys, curve = self.columns(), learning_curve(self.models.log(self.recipe))
        return {
            TRAINING_RUNS.name: pd.DataFrame([{**keys, **self.facts()}]),
            LEARNING_CURVES.name: curve.assign(**keys),
        }

    def _forget_damaged(self) -> None:
        """Discard a training whose weights have changed; it is repeated from its last checkpoint."""
        models, recipe = self.models, self.recipe
        if is_first():
            weights = models.weights(recipe)
            check_target(weights, models.published(recipe))
            if models.is_trained(recipe) and not is_intact(weights):
                discard(weights, recipe.name)
                self.cache.remove(self.stored, self.content)
        wait_for_all()

    def make(self) -> dict[str, Any]:
        models, recipe = self.models, self.recipe
        folder = models.weights(recipe).parent
        hooks = training_hooks(models, recipe, folder)
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

    @classmethod
    def _teachers(cls, models: StudyModels, recipe: Recipe) -> tuple[str, ...]:
        teacher = models.teacher(recipe)
        return () if teacher is None else (cls(models=models, recipe=teacher).key,)


def learning_curve(log: Path) -> pd.DataFrame:
    """step, source_tokens and value of at most 60 intervals of the log, shorter where the loss falls fast."""
    if not log.exists():
        return pd.DataFrame(columns=["step", "source_tokens", "value"])
    lines = [line for line in read_log(log) if "loss" in line]
    ends = np.unique(np.geomspace(1, len(lines), _POINTS).round().astype(int)) if lines else np.array([], dtype=int)
    return pd.DataFrame([_mean(lines[start:end]) for start, end in pairwise([0, *ends.tolist()])])


def _mean(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    last = lines[-1]
    value = float(np.mean([line["loss"] for line in lines]))
    return {"step": last["update"], "source_tokens": last["source_tokens"], "value": value}


def training_estimate(recipe: Recipe) -> float:
    """Measured on a CPU at width 64: translation runs two stacks and longer sentences."""
    return {"translation": 3.3, "causal-lm": 1.4, "masked-lm": 1.0}.get(recipe.objective.name, 2.0)


def training_hooks(models: StudyModels, recipe: Recipe, folder: Path) -> list[TrainingHook]:
    """What subjects let run along with the training in `folder`, such as a recorder of loss changes."""
    return [hook for hooks in provided("stages", "training_hooks") for hook in hooks(models, recipe, folder)]


def pass_options(models: StudyModels, recipe: Recipe) -> PassOptions:
    """How sentences are run through models that were made from a trained one."""
    return models.plan.analysis.passes(corruption=models.objective(recipe))
