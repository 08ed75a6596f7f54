"""Loss change allocation of tuning: which parts of the model learned the task."""

from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.dynamics import LossChangeRecorder, RecordConfig, Recording, evaluation_set, undisturbed
from infoflow.foundation import UserError
from infoflow.models import Anatomy, ParameterGroup, ParameterSlice, discover, learning_parameters
from infoflow.training import Step, TrainingData, TrainingHook

from ._body import OF_HEADS, component_name
from ._seeds import without_tuned
from ._tables import TUNING_ALLOCATION
from ._task import AbstractTask

TASK_HEAD = "task-head"
HEAD_LAYER = -2
_CHEAP = RecordConfig(parameters=False, check_rules=False)


class TuningAllocation(TrainingHook):
    r"""Allocates the change of a task's training loss to groups of parameters while a model is tuned.

    $$ A_g = \sum_t \sum_{i \in g} Δ_{t,i} \int_0^1 \partial_i L(θ_t + sΔ_t)\, ds, \qquad
       \sum_g A_g = L(θ_T) - L(θ_0) $$

    up to the rule's error (`dynamics.LossChangeRecorder`, by trapezoids). L is the task's loss on a fixed sample of its
    training examples, without dropout; Δ are the updates. Give it to `training.train(..., hooks=[...])`; the weights
    are bit for bit those of a training without it. An interrupted training records what an uninterrupted one does.

    Args:
        task: What is trained.
        data: What it is trained on.
        tokens: Of the sample of examples.
        out: Where the recording is written when training ends; None: nowhere.
        config: How the recorder works.

    Raises:
        UserError: Parameters that are trained belong to no part that is known.

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

    def table(self, tuning_seed: int = 0) -> pd.DataFrame:
        """What was allocated so far: `TUNING_ALLOCATION` without the columns of `TUNED`.

        Raises:
            UserError: No update was seen: the training was complete already. Read what it wrote (`Recording.read`).
        """
        if self._recorder is None:
            raise UserError(
                "A training that was complete already is not allocated again. Read the recording that it left: "
                "tuning_allocation(Recording.read(folder))."
            )
        return tuning_allocation(Recording.of(self._recorder), tuning_seed)


def tuned_anatomy(module: PreTrainedModel) -> Anatomy:
    """The anatomy of what is trained; of a head alone, above a body that need not run, its parameters."""
    trained = learning_parameters(module)
    body = {parameter for parameter in module.base_model.parameters() if parameter.requires_grad}
    if module.base_model is module or any(parameter in body for parameter in trained.values()):
        with undisturbed(module):  # it runs the model, which may be in training: dropout, half precision
            return discover(module)
    groups = tuple(
        ParameterGroup(
            component="head", stack=None, layer=None, kind=None, slice=ParameterSlice(parameter=name), size=p.numel()
        )
        for name, p in trained.items()
    )
    return Anatomy(stacks=(), parameter_groups=groups)


def tuning_allocation(recording: Recording, tuning_seed: int = 0) -> pd.DataFrame:
    """The table `TUNING_ALLOCATION`, without the columns of `TUNED`, of what a `TuningAllocation` recorded."""
    groups = recording.tables["allocation_groups"]
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
    schema = without_tuned(TUNING_ALLOCATION)
    return schema.conform(found.assign(tuning_seed=tuning_seed, total=float(groups["value"].sum())))


def _component(component: str, kind: str) -> str:
    return TASK_HEAD if component in OF_HEADS else component_name(component, kind)
