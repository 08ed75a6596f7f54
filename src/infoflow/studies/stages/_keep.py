"""Keep checkpoints that a plan requests after a training run has ended, by repeating it to the same weights.

A training run keeps its checkpoints itself. If some are missing afterwards, because the plan requests more or a file
was damaged, they are rebuilt from existing files or by a second run, which must match every stored hash.
"""

import math
import re
import shutil
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow import training
from infoflow.flow import agree, is_first, wait_for_all
from infoflow.foundation import UserError, current_display, digest, file_digest
from infoflow.results import Recipe, Subject

from .._result_cache import Part
from .._study_models import TRAINED, StudyModels
from ._stage import AbstractStage, OfRecipe
from ._train import training_estimate, training_hooks

_FOLDER = "keeping"
_MOST = 10_000  # K of log:K that a message suggests
_GRIDS = re.compile(r"(?:log|linear):([0-9]+)")


@dataclass(frozen=True, kw_only=True, eq=False)
class Keep(OfRecipe):
    """The checkpoints of one training run."""

    kind = "keep"
    named = "keep {self.recipe.name}"
    with_training = True
    makes = (training.CHECKPOINTS.with_keys(*training.CLOCKS),)

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Keep]":
        if not models.plan.checkpoints.on:
            return []
        if not models.prepared:
            check_budget(models)
        trainings = [stage for stage in before if stage.kind == "train"]
        return [cls(models=models, recipe=stage.recipe, needs=(stage.key,)) for stage in trainings]

    @property
    def estimate(self) -> float:
        """0 if training has not started, since it then keeps its checkpoints itself; else the time to repeat it."""
        return training_estimate(self.recipe) if self.models.is_trained(self.recipe) else 0.005

    def depends(self) -> list[Any]:
        plan = self.models.plan.checkpoints
        return ["keep", self.models.train_key(self.recipe), self.recipe.name, plan.schedule, plan.dtype]

    def is_done(self) -> bool:
        models, recipe = self.models, self.recipe
        return agree(models.is_trained(recipe) and not self._missing())

    def run(self) -> dict[str, Any]:
        """Repair the checkpoints that can be repaired, and train again for the rest."""
        models, recipe = self.models, self.recipe
        if is_first():
            kept = models.snapshots(recipe)
            for update in self._missing():
                if kept.mend(update, models.weights(recipe)):
                    current_display().note(f"The checkpoint after update {update} was damaged and has been restored.")
        wait_for_all()
        if not self.is_done():
            self._train_again()
        if is_first():
            models.snapshots(recipe).expect(models.wanted(recipe))
        wait_for_all()
        return {}

    def tables(self) -> Part:
        models, recipe = self.models, self.recipe
        return {training.CHECKPOINTS.name: pd.DataFrame([self._row(update) for update in models.wanted(recipe)])}

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
        """Requested updates whose checkpoints are missing, damaged or of another precision."""
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
        # The repeated training must not continue from leftovers of another schedule.
        folder = models.bench.path(_FOLDER, digest([self.key, missing]))
        hooks = training_hooks(models, recipe, folder)
        proofs = self._proofs()
        last = models.updates(recipe) if hooks else _proven(max(missing), proofs)
        current_display().note(
            f"Training {recipe.name} again to update {last:,}: {len(missing)} of its checkpoints are missing."
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
            if is_first():  # only this process compares weights; the others are still training
                shutil.rmtree(folder, ignore_errors=True)
            raise
        if is_first():
            models.snapshots(recipe).adopt(training.Snapshots(folder / training.SNAPSHOTS))
            models.snapshots(recipe).share_with(models.weights(recipe), models.updates(recipe))
        _remove(folder)

    def _proofs(self) -> dict[int, Mapping[str, str]]:
        """SHA-256 of the weights that the training must reproduce: those of kept checkpoints and of the final model."""
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
    """Raised when no later update is needed."""


class _StopAfter(training.TrainingHook):
    """Ends a training run after an update, without writing its model."""

    name = "stop"

    def __init__(self, last: int) -> None:
        self._last = last

    def on_step_begin(self, step: training.Step) -> None:
        if step.update > self._last:
            raise _Enough


def _proven(last: int, proofs: Mapping[int, Any]) -> int:
    """The update at which a repeated run may end, once it has matched a hash of weights after the initial ones."""
    if any(0 < update <= last for update in proofs):
        return last
    return min(update for update in proofs if update > last)


def _remove(folder: Path) -> None:
    wait_for_all()
    if is_first():
        shutil.rmtree(folder, ignore_errors=True)
    wait_for_all()


def check_budget(models: StudyModels) -> None:
    """Check the size of all checkpoints of a study against the plan's budget."""
    plan = models.plan.checkpoints
    sizes: dict[tuple[str, str], int] = {}  # the same for all seeds
    for recipe in models.plan.recipes():
        if _kind(recipe) not in sizes:
            sizes[_kind(recipe)] = _parameters(models, recipe)
    kept = [
        (sizes[_kind(recipe)], replace(models.plan.training, updates=models.updates(recipe)))
        for recipe in models.plan.recipes()
    ]

    def size(steps: Callable[[training.TrainConfig], list[int]]) -> int:
        r"""Bytes of all checkpoints: \(4 P\) for the first and last of each run, \(4 P\) or \(2 P\) for the others."""
        width, total = 4 if plan.dtype == "float32" else 2, 0
        for parameters, config in kept:
            ends = len({0, config.updates} & set(chosen := steps(config)))
            total += parameters * (4 * ends + width * (len(chosen) - ends))
        return total

    needed = size(plan.steps)
    _tell_short_trainings(plan.schedule, min(config.updates for _, config in kept))
    if needed <= plan.budget * 1e9:
        return
    count = len(plan.steps(kept[0][1]))
    fitting = bisect(range(1, _MOST + 1), plan.budget * 1e9, key=lambda k: size(partial(_log, k)))
    hint = f'checkpoints.schedule = "log:{fitting}" fits; or' if fitting else "Even the first and the last do not fit:"
    share = f"for each of {len(kept)} training runs" if len(kept) > 1 else "for one training run"
    raise UserError(
        f"checkpoints.budget must cover all checkpoints of the study: {count} {share}, {needed / 1e9:.3g} GB. Got "
        f"{plan.budget:g} GB. {hint} raise the budget."
    )


def _kind(recipe: Recipe) -> tuple[str, str]:
    return recipe.objective.label, recipe.architecture.label


def _parameters(models: StudyModels, recipe: Recipe) -> int:
    """Number of stored weights; shared weights count once."""
    if models.is_trained(recipe):
        return models.bench.read_facts(TRAINED, models.train_key(recipe))["parameters"]
    return sum(parameter.numel() for parameter in models.initial(recipe).parameters())


def _log(k: int, config: training.TrainConfig) -> list[int]:
    return training.checkpoint_steps(f"log:{k}", config.updates, min(config.warmup_updates, config.updates))


def _tell_short_trainings(schedule: str, updates: int) -> None:
    beyond = [int(number) for number in _GRIDS.findall(schedule) if int(number) > updates]
    if beyond:
        current_display().note(
            f"checkpoints.schedule = {schedule}: the training has {updates:,} updates, fewer than {max(beyond):,}, so "
            "every one is kept."
        )
