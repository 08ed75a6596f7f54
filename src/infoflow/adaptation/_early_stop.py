"""Ends a tuning that no longer gains on development data, with the weights of its best moment."""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.models import learning_parameters
from infoflow.training import Step, TrainingHook

_WEIGHT = "weight:"


@final
class EarlyStop(TrainingHook):
    """After every `every` updates asks for a score; after `patience` scores without a better one it ends the training.

    The weights of the best score, of equals the first, are those that training leaves, however it ends. What is kept
    stands in checkpoints, so that a resumed run ends alike.
    """

    name = "early-stop"

    def __init__(self, score: Callable[[PreTrainedModel], float], every: int, patience: int) -> None:
        self._score, self._every, self._patience = score, every, patience
        self._best, self._waited = float("-inf"), 0
        self._weights: dict[str, Tensor] = {}

    @property
    def ended(self) -> bool:
        """Whether there were as many scores without a better one as patience allows."""
        return self._waited >= self._patience

    def on_step_end(self, step: Step) -> None:
        """Score the model where a round of updates is over."""
        if step.update % self._every:
            return
        device = next(step.module.parameters()).device.type
        with torch.autocast(device, enabled=False):  # scores are computed in fp32, as those of the end are
            score = self._score(step.module)
        if score <= self._best:
            self._waited += 1
            return
        self._best, self._waited = score, 0
        self._weights = {
            name: weight.detach().cpu().clone() for name, weight in learning_parameters(step.module).items()
        }

    def on_train_end(self, module: PreTrainedModel) -> None:
        """Put the best weights back."""
        with torch.no_grad():
            for name, weight in learning_parameters(module).items():
                if name in self._weights:
                    weight.copy_(self._weights[name])

    def state_dict(self) -> dict[str, Tensor]:
        """The best score and its weights, and how many scores came after it."""
        numbers = {"best": torch.tensor(self._best, dtype=torch.float64), "waited": torch.tensor(self._waited)}
        return numbers | {f"{_WEIGHT}{name}": weight for name, weight in self._weights.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from them."""
        if not state:
            return
        self._best, self._waited = float(state["best"]), int(state["waited"])
        self._weights = {
            name.removeprefix(_WEIGHT): weight for name, weight in state.items() if name.startswith(_WEIGHT)
        }
