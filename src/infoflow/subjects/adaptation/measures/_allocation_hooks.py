"""Loss change allocation for every seed that `tune` trains."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.foundation import SilentDisplay, UserError, current_display, use_display
from infoflow.models import Anatomy, Model, ParameterGroup, ParameterSlice, discover, learning_parameters
from infoflow.subjects.allocation.measures import (
    ALLOCATION_GROUPS,
    LossChangeRecorder,
    RecordConfig,
    Recording,
    evaluation_set,
    find_cells,
    undisturbed,
)
from infoflow.training import Step, TrainingData, TrainingHook

from ._body import OF_HEADS, component_name
from ._methods import TuneConfig
from ._states import tuned_table
from ._tables import TUNING_ALLOCATION
from ._task import AbstractTask, TaskData
from ._task_model import task_model
from ._task_parts import TaskParts, fitted
from ._tuned import TunedModel

TASK_HEAD = "task-head"
HEAD_LAYER = -2
_CHEAP = RecordConfig(parameters=False, check_rules=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class AllocationHooks:
    """Record which parts learned the task, for each seed; pass it to `tune` as `hooks`.

    If the first of several seeds tries several learning rates, it is not recorded, since a recording costs about as
    much as a training, and only one of the seed's training runs is kept.
    """

    model: Model
    data: TaskData
    task: AbstractTask
    config: TuneConfig
    folder: Path  # folder of the recordings
    tokens: int = 1024  # number of tokens of training examples on which the loss is measured

    def __call__(self, seed: int, rate: float) -> Sequence[TrainingHook]:
        """The recorder of one training; none, with a note, if its parameters belong to no known part."""
        if len(self.config.rates) > 1 and len(self.config.seeds) > 1 and seed == self.config.seeds[0]:
            return ()
        if not self._has_known_parts:
            return ()
        return (TuningAllocation(self._fitted, self._training, tokens=self.tokens, out=self._path(seed, rate)),)

    def table(self, models: Sequence[TunedModel]) -> pd.DataFrame | None:
        """The table TUNING_ALLOCATION without the columns of TUNED; None if nothing was recorded."""
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
        with use_display(SilentDisplay()):  # `tune` reports what is truncated or left out
            return TaskParts.of(self.model, self.data, self._fitted, self.config).training


class TuningAllocation(TrainingHook):
    r"""Allocates the change of a task's training loss during tuning to groups of parameters.

    $$ A_g = \sum_t \sum_{i \in g} Δ_{t,i} \int_0^1 \partial_i L(θ_t + sΔ_t)\, ds, \qquad
        \sum_g A_g = L(θ_T) - L(θ_0) $$

    up to the integration error (`dynamics.LossChangeRecorder`, trapezoidal rule). L is the task's loss on a fixed
    sample of its training examples (`tokens`), without dropout; Δ are the updates. Recording does not change the
    weights, and an interrupted training gives the same recording as an uninterrupted one, written to `out`.

    Source: [@lan2019lca].
    """

    name = "tuning-allocation"

    def __init__(
        self,
        task: AbstractTask,
        data: TrainingData,
        *,
        tokens: int = 2048,
        out: Path | None = None,
        config: RecordConfig = _CHEAP,
    ) -> None:
        self._sample = evaluation_set("train", task, data, tokens, parts=1)
        self._config, self._out = config, out
        self._recorder: LossChangeRecorder | None = None
        self._restored: dict[str, Tensor] | None = None

    def on_step_begin(self, step: Step) -> None:
        if self._recorder is None:
            self._recorder = LossChangeRecorder([self._sample], tuned_anatomy(step.module), self._config, self._out)
            if self._restored is not None:
                self._recorder.load_state_dict(self._restored)
        self._recorder.on_step_begin(step)

    def on_step_end(self, step: Step) -> None:
        self._seen.on_step_end(step)

    def on_train_end(self, module: PreTrainedModel) -> None:
        self._seen.on_train_end(module)

    def state_dict(self) -> dict[str, Tensor]:
        return self._seen.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._restored = state

    @property
    def _seen(self) -> LossChangeRecorder:
        assert self._recorder is not None, "no update was seen"
        return self._recorder


def tuned_anatomy(module: PreTrainedModel) -> Anatomy:
    """The anatomy of the trained parameters; if only a head is trained, it is found without running the body."""
    trained = learning_parameters(module)
    body = {parameter for parameter in module.base_model.parameters() if parameter.requires_grad}
    if module.base_model is module or any(parameter in body for parameter in trained.values()):
        with undisturbed(module):  # `discover` runs the model, which may be in training mode or half precision
            return discover(module)
    groups = tuple(
        ParameterGroup(
            component="head", stack=None, layer=None, kind=None, slice=ParameterSlice(parameter=name), size=p.numel()
        )
        for name, p in trained.items()
    )
    return Anatomy(stacks=(), parameter_groups=groups)


def tuning_allocation(recording: Recording, tuning_seed: int = 0) -> pd.DataFrame:
    """The table `TUNING_ALLOCATION`, without the columns of `TUNED`, from a recording of `TuningAllocation`."""
    groups = recording.tables[ALLOCATION_GROUPS.name]
    groups = groups[groups["set"] == "train"]
    named = [_component(*pair) for pair in zip(groups["component"], groups["kind"], strict=True)]
    of_head = np.array(named) == TASK_HEAD
    groups = groups.assign(
        component=named,
        layer=np.where(of_head, HEAD_LAYER, groups["layer"]),
        stack=np.where(of_head, "", groups["stack"]),
    )
    keys = ["stack", "layer", "component"]
    found = groups.groupby(keys, sort=False, as_index=False).agg({"parameters": "sum", "value": "sum"})
    total = float(groups["value"].sum())
    return tuned_table(TUNING_ALLOCATION, found.assign(tuning_seed=tuning_seed, total=total))


def _component(component: str, kind: str) -> str:
    return TASK_HEAD if component in OF_HEADS else component_name(component, kind)
