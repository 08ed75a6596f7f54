"""Hooks around each update, frozen parameters, and the reasons for which a training stops."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from infoflow.foundation import UserError
from infoflow.models import ParameterSlice
from infoflow.objectives import AbstractObjective, Batch

# Hooks that see the weights before and after each update (loss change allocation uses them).


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


# Parts of parameters that are frozen while the rest of a model trains.


class FrozenSlices(TrainingHook):
    """Keeps slices of a module's parameters exactly at their initial values; see `frozen_slices`.

    Their gradient is set to 0 before clipping, so that it enters no norm and no optimiser moment; changes by weight
    decay are reverted after every update.
    """

    name = "frozen-slices"

    def __init__(self, module: nn.Module, slices: Iterable[ParameterSlice]) -> None:
        self._masks: dict[str, Tensor] = {}
        self._parameters: dict[str, nn.Parameter] = {}
        for piece in slices:
            parameter = self._parameters.setdefault(piece.parameter, module.get_parameter(piece.parameter))
            mask = self._masks.get(piece.parameter, torch.zeros(parameter.shape, dtype=torch.bool))
            self._masks[piece.parameter] = mask | piece.mask(parameter)
        self._kept = {name: self._parameters[name].detach().cpu()[mask].clone() for name, mask in self._masks.items()}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def on_step_begin(self, step: Step) -> None:
        if not self._handles:  # not earlier: training first moves the module to its device
            self._handles = [self._parameters[name].register_hook(_zeroed(mask)) for name, mask in self._masks.items()]

    def on_step_end(self, step: Step) -> None:
        with torch.no_grad():
            for name, mask in self._masks.items():
                parameter = self._parameters[name]
                parameter[mask.to(parameter.device)] = self._kept[name].to(parameter.device)

    def close(self) -> None:
        """Let gradients through again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._kept)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Check that the run was started with the same frozen slices.

        Raises:
            UserError: It was started with others, or with none.
        """
        same = state.keys() == self._kept.keys()
        if not same or not all(torch.equal(state[name], kept) for name, kept in self._kept.items()):
            have = ", ".join(sorted(state)) or "none"
            raise UserError(
                "Training must continue with the same frozen weights. Got "
                f"{', '.join(sorted(self._kept))}; previously frozen: {have}, or with other values.\n"
                "Give another output folder, or freeze the same weights."
            )


@contextmanager
def frozen_slices(module: nn.Module, slices: Iterable[ParameterSlice]) -> Iterator[FrozenSlices]:
    """The hook for `train` that freezes slices of the module's parameters; afterwards gradients pass again.

    ```python
    with frozen_slices(model.module, head_slices(model, heads)) as hook:
        train(objective, config, data, model.module, out, hooks=[hook])
    ```
    """
    hook = FrozenSlices(module, slices)
    try:
        yield hook
    finally:
        hook.close()


def _zeroed(mask: Tensor):
    def zero(gradient: Tensor) -> Tensor:
        return gradient.masked_fill(mask.to(gradient.device), 0.0)

    return zero


class TrainingDiverged(UserError):
    """A loss or a gradient is not finite: the learning rate is too high, or the warm-up too short."""


class TrainingInterrupted(KeyboardInterrupt):
    """Training was asked to stop; its state is saved, and the same call continues it."""

    def __init__(self, update: int, folder: Path) -> None:
        super().__init__(f"Stopped after update {update}. Run the same command again to continue from {folder}.")
        self.update = update
        self.folder = folder
