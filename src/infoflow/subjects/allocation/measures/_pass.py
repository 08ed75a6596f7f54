"""One forward pass over sentences of an evaluation set."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from infoflow.objectives import AbstractObjective, Batch, LossTerm


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ModelPass:
    """A batch, with additional arguments for stacks whose rows hold several sentences."""

    batch: Batch
    told: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # arguments of `forward`, by module name

    def to(self, device: torch.device) -> "ModelPass":
        """The same on another device."""
        told = {name: {key: t.to(device) for key, t in given.items()} for name, given in self.told.items()}
        return ModelPass(batch=self.batch.to(device), told=told)

    def loss(self, module: PreTrainedModel, objective: AbstractObjective) -> dict[str, LossTerm]:
        """The objective's terms on these sentences."""
        with _telling(module, self.told):
            return objective.loss(module, self.batch, self.batch.noise)


@contextmanager
def _telling(module: nn.Module, told: Mapping[str, Mapping[str, Tensor]]) -> Iterator[None]:
    """Override these arguments in calls of the named submodules."""
    with ExitStack() as hooks:
        for name, given in told.items():

            def replace(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], given=given) -> tuple[Any, Any]:
                return args, {**kwargs, **given}

            hooks.callback(module.get_submodule(name).register_forward_pre_hook(replace, with_kwargs=True).remove)
        yield
