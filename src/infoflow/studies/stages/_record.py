"""Loss change allocation: recorded while a model trains, or in a second training to the same weights.

A recording is keyed by the training and the settings of `[dynamics]`. A model that was trained, or begun, without it is
trained once more with the recorder; what is published stays the first one's.
"""

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.dynamics import ALLOCATION_SIMILARITY, TABLES, LossChangeRecorder, compare_trainings, evaluation_set
from infoflow.flow import agree, is_first, wait_for_all
from infoflow.foundation import current_display, digest
from infoflow.models import load_model
from infoflow.results import KEYS, Recipe, Subject, TableSchema

from .._begun_with import is_begun_with
from .._study_models import StudyModels
from .._workbench import Part
from ._stage import AbstractStage

_VERSION = 1  # raise when the same plan records otherwise
_LATER = ("allocation_histogram", "allocation_lags")  # tables that older recordings lack: no reason to train again
_RECORDED = "recorded"


@dataclass(frozen=True, kw_only=True, eq=False)
class Record(AbstractStage):
    """The recording of one training."""

    kind = "record"
    models: StudyModels
    recipe: Recipe

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[Record]":
        if not models.plan.dynamics.on:
            return []
        trainings = [stage for stage in before if stage.kind == "train"]
        # One more training for checkpoints records as well.
        keeps = {stage.recipe: (stage.key,) for stage in before if stage.kind == "keep"}
        return [
            cls(models=models, recipe=stage.recipe, needs=(stage.key, *keeps.get(stage.recipe, ())))
            for stage in trainings
        ]

    @property
    def estimate(self) -> float:
        return training_estimate(self.recipe)

    @cached_property
    def key(self) -> str:
        return recording_key(self.models, self.recipe)

    @property
    def label(self) -> str:
        return f"record {self.recipe.name}"

    def is_done(self) -> bool:
        return agree(is_recorded(self.models, self.recipe))

    def run(self) -> dict[str, Any]:
        """Train once more with the recorder, unless the first training has recorded."""
        models, recipe = self.models, self.recipe
        if self.is_done():
            return {}
        current_display().note(
            f"Training {recipe.name} once more: it was trained before loss changes were to be recorded."
        )
        folder = models.bench.path("recording", self.key)
        models.train_into(recipe, folder, [_recorder(models, recipe)], keep_last=1)
        if is_first():
            shutil.rmtree(folder)
        wait_for_all()
        return {}

    def tables(self) -> Part:
        keys = Subject(recipe=self.recipe).keys()
        part = self.models.bench.read(_RECORDED, self.key)
        known = self.schemas()
        # Earlier recordings call the beginning of a window `start`, which names a model now.
        renamed = {name: frame.rename(columns={"start": "begin"}) for name, frame in part.items() if name in known}
        return {name: frame.assign(**keys) for name, frame in renamed.items()}

    def schemas(self) -> dict[str, TableSchema]:
        return {schema.name: schema.with_keys(*KEYS) for schema in TABLES}


@dataclass(frozen=True, kw_only=True, eq=False)
class CompareRecordings(AbstractStage):
    """How alike the trainings of a study spread the work: cheap, and of no use without all of them."""

    kind = "compare"
    runs_models = False
    recordings: Sequence[Record]

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[CompareRecordings]":
        records = [stage for stage in before if isinstance(stage, Record)]
        return [cls(recordings=records, needs=tuple(stage.key for stage in records))] if records else []

    @cached_property
    def key(self) -> str:
        recorded = [(one.key, one.recipe.name) for one in self.recordings]
        return digest(["recordings", ALLOCATION_SIMILARITY.version, recorded])

    @property
    def label(self) -> str:
        return "compare recordings"

    def is_done(self) -> bool:
        return agree(self._bench.done("recordings", self.key))

    def run(self) -> dict[str, Any]:
        self._bench.tables("recordings", self.key, self.schemas(), self._compare)
        return {}

    def tables(self) -> Part:
        return self._bench.read("recordings", self.key)

    def schemas(self) -> dict[str, TableSchema]:
        return {ALLOCATION_SIMILARITY.name: ALLOCATION_SIMILARITY}

    @property
    def _bench(self):
        return self.recordings[0].models.bench

    def _compare(self) -> Part:
        groups = pd.concat([one.tables()["allocation_groups"] for one in self.recordings], ignore_index=True)
        return {ALLOCATION_SIMILARITY.name: compare_trainings(groups)}


def training_estimate(recipe: Recipe) -> float:
    """Measured on a CPU at width 64: translation runs two stacks and longer sentences."""
    return {"translation": 3.3, "causal-lm": 1.4, "masked-lm": 1.0}.get(recipe.objective.name, 2.0)


def recording_key(models: StudyModels, recipe: Recipe) -> str:
    """What the recording of a training depends on."""
    plan = models.plan.dynamics
    settings = {k: v for k, v in dataclasses.asdict(plan).items() if k not in {"on", *plan.record().untold}}
    tables = [[t.name, t.version] for t in TABLES if t.name not in _LATER]
    return digest([_VERSION, tables, models.train_key(recipe), settings])


def is_recorded(models: StudyModels, recipe: Recipe) -> bool:
    """Whether nothing of the recording is missing that the plan asks for."""
    return not models.plan.dynamics.on or models.bench.done(_RECORDED, recording_key(models, recipe))


def recorders(models: StudyModels, recipe: Recipe, folder: Path) -> list[LossChangeRecorder]:
    """The hook for a training in `folder`: none where the plan asks for none, or the training began without it."""
    key, recorded = recording_key(models, recipe), is_recorded(models, recipe)
    return [_recorder(models, recipe)] if is_begun_with(folder, key, recorded) else []


def _recorder(models: StudyModels, recipe: Recipe) -> LossChangeRecorder:
    plan, objective, data = models.plan.dynamics, models.objective(recipe), models.data
    sources = [("train", data.train, plan.tokens), ("held-out", data.validation, plan.held_out_tokens)]
    sets = [
        evaluation_set(
            name,
            objective,
            models.held_out(recipe, part),
            tokens,
            plan.parts,
            micro_tokens=models.plan.training.micro_tokens,
        )
        for name, part, tokens in sources
        if tokens
    ]
    out = models.bench.path(_RECORDED, recording_key(models, recipe))
    return LossChangeRecorder(sets, load_model(models.initial(recipe)).anatomy, plan.record(), out)
