"""Train fresh models with transplanted heads of a trained one, and compute their learning curves.

Each variant is a stage with the same initial weights and the same batches in the same order, but other heads. Its
weights are kept at the steps of the curve until these are scored.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import current_display, digest
from infoflow.heads import TRANSPLANT_CURVES, Head, head_slices, shuffled_heads, transplant
from infoflow.models import Model, load_model
from infoflow.results import UNTRAINED, Subject, estimate
from infoflow.studies._data import at_most
from infoflow.studies._study_models import StudyModels
from infoflow.studies.stages._stage import AbstractStage, AbstractTableStage, OfRecipe
from infoflow.studies.stages._train import pass_options, training_estimate
from infoflow.subjects.pruning.measures import quality
from infoflow.training import SNAPSHOTS, SnapshotPlan, Snapshots, TrainingHook, frozen_slices

from ._choose_heads import (
    NONE,
    SHUFFLED,
    Arm,
    ChooseHeads,
    arms,
    fresh_recipe,
    heads_of,
)

_VERSION = 1  # increase when the same plan trains or scores other fresh models


@dataclass(frozen=True, kw_only=True, eq=False)
class Transplant(OfRecipe, AbstractTableStage):
    """One variant for one trained model: a fresh model from initial weights to the end of its learning curve."""

    kind = "transplant"
    named = "transplant {self.recipe.name}, {self.arm}"
    stored = "transplanted"
    makes = (TRANSPLANT_CURVES,)
    arm: Arm

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Transplant]":
        """Every variant for each model whose heads the plan transplants."""
        asked = models.plan.transplant
        return [
            cls(models=models, recipe=recipe, arm=arm, needs=(ChooseHeads(models=models, recipe=recipe).key,))
            for recipe in (models.plan.recipes(asked.objectives) if asked.on else [])
            for arm in arms(models.plan)
        ]

    @property
    def estimate(self) -> float:
        training = self.models.plan.training
        share = self.models.plan.transplant.num_updates(training) / training.updates
        return training_estimate(self.recipe) * share + 0.02 * len(self._steps)

    def depends(self) -> list[Any]:
        return ["transplant", self.recipe.name, self.content]

    @cached_property
    def content(self) -> str:
        """Key of the learning curve."""
        schedule = self.models.plan.transplant.schedule
        parts = [self._training_key, str(self.arm), self._choice.content, schedule]
        return digest([_VERSION, TRANSPLANT_CURVES.version, parts])

    @property
    def _training_key(self) -> str:
        """Key of the fresh model's weights, regardless of which updates are kept."""
        models, asked, arm = self.models, self.models.plan.transplant, self.arm
        settings: list[object] = [asked.num_updates(models.plan.training)]
        if arm.needs_heads:
            chosen = [asked.scope, asked.heads, asked.choose, asked.rank_sentences, asked.role_sentences]
            settings += [models.train_key(self.recipe), chosen, arm.name, arm.frozen, arm.draw]
        return digest([_VERSION, "training", models.train_key(fresh_recipe(self.recipe)), settings])

    def run(self) -> dict[str, Any]:
        super().run()
        if is_first():
            shutil.rmtree(self._folder, ignore_errors=True)
        wait_for_all()
        return {}

    @property
    def _choice(self) -> ChooseHeads:
        return ChooseHeads(models=self.models, recipe=self.recipe)

    @cached_property
    def _steps(self) -> list[int]:
        return self.models.plan.transplant.steps(self.models.plan.training)

    @property
    def _folder(self) -> Path:
        return self.cache.path("transplanting", self._training_key)

    @cached_property
    def _heads(self) -> list[Head]:
        return heads_of(self.models.plan, self.recipe, self._choice.head_scores(), self.arm)

    # -- the curve ----------------------------------------------------------------------------------------------------

    def make(self) -> pd.DataFrame:
        """Train, then score every kept step; no rows if the trained model has no heads to transplant."""
        if self.arm.needs_heads and not self._heads:
            return TRANSPLANT_CURVES.conform(pd.DataFrame(columns=TRANSPLANT_CURVES.column_names))
        kept = Snapshots(self._folder / SNAPSHOTS)
        if is_first() and (self._folder / "model").exists() and not set(self._steps) <= set(kept.kept()):
            shutil.rmtree(self._folder)  # finished for other steps, or damaged
        wait_for_all()
        self._train()
        rows = [row for step in self._steps for row in self._points(kept, step)]
        self._tell(rows)
        return TRANSPLANT_CURVES.conform(pd.DataFrame(rows, columns=TRANSPLANT_CURVES.column_names))

    def _points(self, kept: Snapshots, step: int) -> Iterator[dict[str, Any]]:
        """The rows of one update."""
        models, full = self.models, self._choice.facts()["scores"]
        loaded = load_model(kept.path(step), device=models.plan.training.device)
        model = models.named(loaded, self.recipe, str(self.arm))
        options, beams = pass_options(models, self.recipe), models.plan.analysis.beams
        for metric in self._choice.metrics() if step == self._steps[-1] else ["loss"]:
            found = quality(model, self._held_out, frozenset(), metric, beams=beams, options=options)
            yield {
                "arm": self.arm.name,
                "frozen": self.arm.frozen,
                "draw": self.arm.draw,
                "step": step,
                "source_tokens": kept.entries()[step].source_tokens,
                "heads": len(self._heads),
                "metric": metric,
                **estimate(float(found["scores"][0]), found["scores"][1:], full[metric], found["count"]),
                "signature": found["signature"],
            }

    @cached_property
    def _held_out(self) -> Corpus:
        return at_most(self.models.data.analysed, self.models.plan.transplant.score_sentences)

    def _tell(self, rows: Sequence[dict[str, Any]]) -> None:
        last = [row for row in rows if row["step"] == self._steps[-1]]
        scores = ", ".join(f"{row['metric']} {row['value']:.3g} (donor {row['baseline']:.3g})" for row in last)
        current_display().note(
            f"{len(self._heads)} heads transplanted or frozen: {scores} after {self._steps[-1]:,} updates"
        )

    # -- the training -------------------------------------------------------------------------------------------------

    def _train(self) -> None:
        plan, fresh = self.models.plan, fresh_recipe(self.recipe)
        model = self._placed(self.models.load(Subject(recipe=fresh, update=UNTRAINED)))
        with self._hooks(model) as hooks:
            self.models.train_into(
                fresh,
                self._folder,
                hooks,
                model.module,
                snapshots=SnapshotPlan(steps=lambda config: self._steps),
                updates=plan.transplant.num_updates(plan.training),
                max_source_tokens=None,
                evaluate_every=0,
                save_every=plan.transplant.save_every,
                keep_last=1,
            )

    def _placed(self, fresh: Model) -> Model:
        """The fresh model with the variant's heads in place of its own."""
        if self.arm.name == NONE:
            return fresh
        donor = self.models.load(Subject(recipe=self.recipe))
        if self.arm.name == SHUFFLED:
            donor = shuffled_heads(donor, self._heads, self.recipe.seed)
        return transplant(donor, fresh, {head: head for head in self._heads})

    @contextmanager
    def _hooks(self, model: Model) -> Iterator[list[TrainingHook]]:
        if not self.arm.frozen:
            yield []
            return
        with frozen_slices(model.module, head_slices(model, self._heads)) as hook:
            yield [hook]
