"""Hooks that see the weights before and after each update (loss change allocation uses them)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from transformers import PreTrainedModel

from infoflow.objectives import AbstractObjective, Batch


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Step:
    """One update as input of a hook."""

    update: int  # from 1
    total: int  # updates of the whole run
    learning_rate: float
    module: PreTrainedModel  # weights before the update in `on_step_begin`, after it in `on_step_end`
    objective: AbstractObjective
    batches: Sequence[Batch]  # this process's micro-batches


class TrainingHook:
    """Does nothing; subclass and override. A hook may draw random numbers: training uses its own seeds."""

    name = "hook"

    @property
    def ended(self) -> bool:
        """Whether training should end here, before its last update."""
        return False

    def on_step_begin(self, step: Step) -> None:
        """Before the gradients of this update are computed."""

    def on_step_end(self, step: Step) -> None:
        """After the weights have changed; `.grad` still holds the (clipped) gradients of the update."""

    def on_train_end(self, module: PreTrainedModel) -> None:
        """After the last update of the run (not after an interruption)."""

    def state_dict(self) -> dict[str, Tensor]:
        """State for a checkpoint, so that a resumed run records the same."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the state from `state_dict`."""
