"""Train fresh models with heads of a trained one in place of their own, and draw their learning curves.

Each arm is a stage: the same first weights and the same batches in the same order, other heads. Its weights are kept at
the points of the curve until these are scored, then go.
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
from infoflow.flow import agree, is_first, wait_for_all
from infoflow.foundation import current_display, digest
from infoflow.heads import TRANSPLANT_CURVES, Head, head_slices, shuffled_heads, transplant
from infoflow.models import Model, load_model
from infoflow.pruning import quality
from infoflow.results import KEYS, UNTRAINED, Recipe, Subject, TableSchema, estimate
from infoflow.training import SNAPSHOTS, SnapshotPlan, Snapshots, TrainingHook, frozen_slices

from .._data import at_most
from .._study_models import StudyModels
from .._workbench import Part
from ._choose_heads import choice_stage_key, donor_scores, head_scores, metrics
from ._pruning_points import pass_options
from ._record import training_estimate
from ._stage import AbstractStage
from ._transplant_arms import NONE, SHUFFLED, Arm, arm_keys, arms, curve_key, fresh_recipe, heads_of, training_key

_CURVES, _FOLDER = "transplanted", "transplanting"
_SCHEMAS = {TRANSPLANT_CURVES.name: TRANSPLANT_CURVES}


@dataclass(frozen=True, kw_only=True, eq=False)
class Transplant(AbstractStage):
    """One arm of one trained model: a fresh model from first weights to the end of its learning curve."""

    kind = "transplant"
    models: StudyModels
    recipe: Recipe
    arm: Arm

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Transplant]":
        """Every arm of each model whose heads the plan puts into fresh ones."""
        asked = models.plan.transplant
        return [
            cls(models=models, recipe=recipe, arm=arm, needs=(choice_stage_key(models, recipe),))
            for recipe in (models.plan.recipes(asked.objectives) if asked.on else [])
            for arm in arms(models.plan)
        ]

    @property
    def estimate(self) -> float:
        training = self.models.plan.training
        share = self.models.plan.transplant.num_updates(training) / training.updates
        return training_estimate(self.recipe) * share + 0.02 * len(self._steps)

    @cached_property
    def key(self) -> str:
        return digest(["transplant", self.recipe.name, curve_key(self.models, self.recipe, self.arm)])

    @property
    def label(self) -> str:
        return f"transplant {self.recipe.name}, {self.arm}"

    def is_done(self) -> bool:
        return agree(self.models.bench.done(_CURVES, self._curve_key))

    def run(self) -> dict[str, Any]:
        self.models.bench.tables(_CURVES, self._curve_key, _SCHEMAS, lambda: {TRANSPLANT_CURVES.name: self._curve()})
        if is_first():
            shutil.rmtree(self._folder, ignore_errors=True)
        wait_for_all()
        return {}

    def tables(self) -> Part:
        keys = Subject(recipe=self.recipe).keys()
        found = self.models.bench.read(_CURVES, self._curve_key)
        return {name: frame.assign(**keys) for name, frame in found.items()}

    def schemas(self) -> dict[str, TableSchema]:
        return {name: schema.with_keys(*KEYS) for name, schema in _SCHEMAS.items()}

    @cached_property
    def _curve_key(self) -> str:
        return curve_key(self.models, self.recipe, self.arm)

    @cached_property
    def _steps(self) -> list[int]:
        return self.models.plan.transplant.steps(self.models.plan.training)

    @property
    def _folder(self) -> Path:
        return self.models.bench.path(_FOLDER, training_key(self.models, self.recipe, self.arm))

    @cached_property
    def _heads(self) -> list[Head]:
        return heads_of(self.models.plan, self.recipe, head_scores(self.models, self.recipe), self.arm)

    # -- the curve ----------------------------------------------------------------------------------------------------

    def _curve(self) -> pd.DataFrame:
        """Train, then score every kept point; no rows where the trained model has no heads to put in."""
        if self.arm.needs_heads and not self._heads:
            return TRANSPLANT_CURVES.conform(pd.DataFrame(columns=TRANSPLANT_CURVES.column_names))
        kept = Snapshots(self._folder / SNAPSHOTS)
        if is_first() and (self._folder / "model").exists() and not set(self._steps) <= set(kept.kept()):
            shutil.rmtree(self._folder)  # finished for other points, or damaged
        wait_for_all()
        self._train()
        rows = [row for step in self._steps for row in self._points(kept, step)]
        self._tell(rows)
        return TRANSPLANT_CURVES.conform(pd.DataFrame(rows, columns=TRANSPLANT_CURVES.column_names))

    def _points(self, kept: Snapshots, step: int) -> Iterator[dict[str, Any]]:
        """The rows of one update."""
        models, full = self.models, donor_scores(self.models, self.recipe)
        loaded = load_model(kept.path(step), device=models.plan.training.device)
        model = models.named(loaded, self.recipe, str(self.arm))
        options, beams = pass_options(models, self.recipe), models.plan.analysis.beams
        for metric in metrics(models, self.recipe) if step == self._steps[-1] else ["loss"]:
            found = quality(model, self._held_out, frozenset(), metric, beams=beams, options=options)
            yield {
                **arm_keys(self.arm),
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
        current_display().note(f"{len(self._heads)} heads put in or frozen: {scores} after {self._steps[-1]:,} updates")

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
        """The fresh model with the arm's heads in place of its own."""
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
