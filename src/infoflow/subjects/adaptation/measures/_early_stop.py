"""Stops a tuning without further gain on development data, and restores its best weights."""

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
    """Scores after every `every` updates; ends the training after `patience` scores without a better one.

    Training ends with the weights of the best score (the first one wins ties), for whatever reason it ends. The state
    is part of checkpoints, so a resumed run ends the same way.
    """

    name = "early-stop"

    def __init__(self, score: Callable[[PreTrainedModel], float], every: int, patience: int) -> None:
        self._score, self._every, self._patience = score, every, patience
        self._best, self._waited = float("-inf"), 0
        self._weights: dict[str, Tensor] = {}

    @property
    def ended(self) -> bool:
        """Whether there were `patience` scores without a better one."""
        return self._waited >= self._patience

    def on_step_end(self, step: Step) -> None:
        """Score the model at the end of a round of updates."""
        if step.update % self._every:
            return
        device = next(step.module.parameters()).device.type
        with torch.autocast(device, enabled=False):  # scores are computed in fp32, as in the final evaluation
            score = self._score(step.module)
        if score <= self._best:
            self._waited += 1
            return
        self._best, self._waited = score, 0
        self._weights = {
            name: weight.detach().cpu().clone() for name, weight in learning_parameters(step.module).items()
        }

    def on_train_end(self, module: PreTrainedModel) -> None:
        """Restore the best weights."""
        with torch.no_grad():
            for name, weight in learning_parameters(module).items():
                if name in self._weights:
                    weight.copy_(self._weights[name])

    def state_dict(self) -> dict[str, Tensor]:
        """The best score and its weights, and the number of scores since then."""
        numbers = {"best": torch.tensor(self._best, dtype=torch.float64), "waited": torch.tensor(self._waited)}
        return numbers | {f"{_WEIGHT}{name}": weight for name, weight in self._weights.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from them."""
        if not state:
            return
        self._best, self._waited = float(state["best"]), int(state["waited"])
        self._weights = {
            name.removeprefix(_WEIGHT): weight for name, weight in state.items() if name.startswith(_WEIGHT)
        }
