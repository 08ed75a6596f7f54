"""Loss change allocation for every seed that `tune` trains."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from infoflow.foundation import SilentDisplay, UserError, current_display, use_display
from infoflow.models import Model
from infoflow.subjects.allocation.measures import Recording, find_cells
from infoflow.training import TrainingData, TrainingHook

from ._room import fitted
from ._task import AbstractTask, TaskData
from ._task_model import task_model
from ._task_parts import TaskParts
from ._tune_config import TuneConfig
from ._tuned import TunedModel
from ._tuning_allocation import TuningAllocation, tuned_anatomy, tuning_allocation


@dataclass(frozen=True, kw_only=True, eq=False)
class AllocationHooks:
    """Value for `hooks` of `tune`: records which parts learned the task, with each seed.

    If learning rates are chosen with the first seed, that seed is not recorded unless it is the only one: only one of
    its trainings is kept, and a recording costs about as much as a training.
    """

    model: Model
    data: TaskData
    task: AbstractTask
    config: TuneConfig
    folder: Path
    """Folder of the recordings."""
    tokens: int = 1024
    """Number of tokens of the training examples for the loss."""

    def __call__(self, seed: int, rate: float) -> Sequence[TrainingHook]:
        """The recorder of one training; none, with a note, if its parameters belong to no known part."""
        if len(self.config.rates) > 1 and len(self.config.seeds) > 1 and seed == self.config.seeds[0]:
            return ()
        if not self._has_known_parts:
            return ()
        return (TuningAllocation(self._fitted, self._training, tokens=self.tokens, out=self._path(seed, rate)),)

    def table(self, models: Sequence[TunedModel]) -> pd.DataFrame | None:
        """The table TUNING_ALLOCATION without the columns of TUNED; None where nothing was recorded."""
        recorded = [(one, self._path(one.seed, one.learning_rate)) for one in models]
        frames = [tuning_allocation(Recording.read(path), one.seed) for one, path in recorded if path.is_dir()]
        return pd.concat(frames, ignore_index=True) if frames else None

    def _path(self, seed: int, rate: float) -> Path:
        return self.folder / f"seed-{seed}-rate-{rate}"

    @cached_property
    def _has_known_parts(self) -> bool:
        """Whether parameters can be assigned to parts; independent of the seed."""
        with use_display(SilentDisplay()):
            module = task_model(self.model, self.task, self.config.seeds[0])
        try:
            find_cells(module, tuned_anatomy(module))
        except UserError as error:
            current_display().note(f"Loss changes of {self.task.task} in {self.model.name} are not allocated: {error}")
            return False
        return True

    @cached_property
    def _fitted(self) -> AbstractTask:
        """The task as `tune` fits it to the model."""
        return fitted(self.task, self.model, self.config)

    @cached_property
    def _training(self) -> TrainingData:
        with use_display(SilentDisplay()):  # `tune` reports what is cut or left out
            return TaskParts.of(self.model, self.data, self._fitted, self.config).training
