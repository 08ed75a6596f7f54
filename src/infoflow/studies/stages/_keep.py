"""Checkpoints that a plan wants of a training which has ended without them: it is done once more, to the same weights.

A training keeps its checkpoints itself. What is missing afterwards, because the plan grew or a file was damaged, is put
together again from what there is, or kept in a second training that must meet every stored hash.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.flow import agree, is_first, wait_for_all
from infoflow.foundation import UserError, current_display, digest, file_digest
from infoflow.over_training import CHECKPOINTS, CLOCKS
from infoflow.results import KEYS, Recipe, Subject, TableSchema
from infoflow.training import SNAPSHOTS, Snapshots, Step, TrainingHook

from .._checkpoint_budget import check_budget
from .._study_models import StudyModels
from .._workbench import Part
from ._record import recorders, training_estimate
from ._stage import AbstractStage

_FOLDER = "keeping"


@dataclass(frozen=True, kw_only=True, eq=False)
class Keep(AbstractStage):
    """The checkpoints of one training."""

    kind = "keep"
    models: StudyModels
    recipe: Recipe

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Keep]":
        """One for each training.

        Raises:
            UserError: The checkpoints do not fit into the plan's budget.
        """
        if not models.plan.checkpoints.on:
            return []
        if not models.prepared:
            check_budget(models)
        trainings = [stage for stage in before if stage.kind == "train"]
        return [cls(models=models, recipe=stage.recipe, needs=(stage.key,)) for stage in trainings]

    @property
    def estimate(self) -> float:
        """A training that is still to come keeps its own."""
        return training_estimate(self.recipe) if self.models.is_trained(self.recipe) else 0.005

    @cached_property
    def key(self) -> str:
        plan = self.models.plan.checkpoints
        return digest(["keep", self.models.train_key(self.recipe), self.recipe.name, plan.schedule, plan.dtype])

    @property
    def label(self) -> str:
        return f"keep {self.recipe.name}"

    def is_done(self) -> bool:
        models, recipe = self.models, self.recipe
        return agree(models.is_trained(recipe) and not self._missing())

    def run(self) -> dict[str, Any]:
        """Mend what can be mended; train once more for the rest."""
        models, recipe = self.models, self.recipe
        if is_first():
            kept = models.snapshots(recipe)
            for update in self._missing():
                if kept.mend(update, models.weights(recipe)):
                    current_display().note(f"The checkpoint after update {update} was damaged: it is whole again.")
        wait_for_all()
        if not self.is_done():
            self._train_again()
        if is_first():
            models.snapshots(recipe).expect(models.wanted(recipe))
        wait_for_all()
        return {}

    def tables(self) -> Part:
        """What the manifest says of each kept update."""
        models, recipe = self.models, self.recipe
        return {CHECKPOINTS.name: pd.DataFrame([self._row(update) for update in models.wanted(recipe)])}

    def schemas(self) -> dict[str, TableSchema]:
        return {CHECKPOINTS.name: CHECKPOINTS.with_keys(*KEYS, *CLOCKS)}

    def _row(self, update: int) -> dict[str, Any]:
        models, recipe = self.models, self.recipe
        entry, folder = models.snapshot(recipe, update), models.checkpoint(recipe, update)
        unknown = dict.fromkeys(("validation_loss", "sample_loss"), math.nan)
        return {
            **Subject(recipe=recipe, update=update).keys(),
            **models.clock(recipe, update).columns(),
            **unknown,
            "name": folder.name,
            "revision": "",
            "commit": "",
            "sha256": " ".join(entry.weights.values()),
            "bytes": sum((folder / name).stat().st_size for name in entry.weights),
            "dtype": entry.dtype,
            "lr": entry.learning_rate,
            "training_loss": math.nan if entry.loss is None else entry.loss,
            "skipped": 0.0,
            "excluded": False,
        }

    def _missing(self) -> list[int]:
        """Updates that are wanted, and not kept as they are wanted."""
        models, recipe = self.models, self.recipe
        kept, plan, updates = models.snapshots(recipe), models.keeping(), models.updates(recipe)
        entries = kept.entries()
        return [
            update
            for update in models.wanted(recipe)
            if plan is not None
            and (
                update not in entries
                or entries[update].dtype != plan.dtype_at(update, updates)
                or not kept.is_intact(entries[update])
            )
        ]

    def _train_again(self) -> None:
        models, recipe, missing = self.models, self.recipe, self._missing()
        # The same training must not go on from what another schedule left of it.
        folder = models.bench.path(_FOLDER, digest([self.key, missing]))
        hooks: list[TrainingHook] = [*recorders(models, recipe, folder)]
        proofs = self._proofs()
        last = models.updates(recipe) if hooks else _proven(max(missing), proofs)
        current_display().note(
            f"Training {recipe.name} once more, to update {last:,}: {len(missing)} of its checkpoints are not there."
        )
        plan = models.keeping()
        assert plan is not None
        wanted = replace(plan, steps=lambda _: missing, proofs=proofs)
        try:
            hooks.append(_StopAfter(last))
            models.train_into(recipe, folder, hooks, snapshots=wanted, keep_last=1, evaluate_every=0)
        except _Enough:
            pass
        except UserError:
            if is_first():  # it alone compares: the others are still training
                shutil.rmtree(folder, ignore_errors=True)
            raise
        if is_first():
            models.snapshots(recipe).adopt(Snapshots(folder / SNAPSHOTS))
            models.snapshots(recipe).share_with(models.weights(recipe), models.updates(recipe))
        _remove(folder)

    def _proofs(self) -> dict[int, Mapping[str, str]]:
        """SHA-256 of weights that the training must meet: of what was kept, and of the final model."""
        models, recipe = self.models, self.recipe
        plan, updates = models.keeping(), models.updates(recipe)
        known = {
            update: entry.weights
            for update, entry in models.snapshots(recipe).entries().items()
            if plan is not None and entry.dtype == plan.dtype_at(update, updates)
        }
        final = {file.name: file_digest(file) for file in sorted(models.weights(recipe).glob("*.safetensors"))}
        return {**known, updates: final}


class _Enough(Exception):
    """No later update is needed."""


class _StopAfter(TrainingHook):
    """Ends a training behind an update, without its model."""

    name = "stop"

    def __init__(self, last: int) -> None:
        self._last = last

    def on_step_begin(self, step: Step) -> None:
        if step.update > self._last:
            raise _Enough


def _proven(last: int, proofs: Mapping[int, Any]) -> int:
    """Where a training may end that is wanted to `last`: not before it has met a hash, the first weights' aside."""
    if any(0 < update <= last for update in proofs):
        return last
    return min(update for update in proofs if update > last)


def _remove(folder: Path) -> None:
    wait_for_all()
    if is_first():
        shutil.rmtree(folder, ignore_errors=True)
    wait_for_all()
