"""Loss and gradient of a model on an evaluation set, without side effects on the model or its training."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from infoflow.foundation import UserError
from infoflow.models import learning_parameters
from infoflow.objectives import AbstractObjective

from ._pass import ModelPass


class FlatParameters:
    """The trainable parameters of a module as one vector: read, restored exactly, differentiated."""

    def __init__(self, module: nn.Module) -> None:
        named = list(learning_parameters(module).items())
        if not named:
            raise UserError("Loss change allocation needs trainable parameters. Got a model that is frozen.")
        wrong = [name for name, p in named if p.dtype not in (torch.float32, torch.float64)]
        if wrong:
            raise UserError(
                f"Loss change allocation needs float32 weights; train in bfloat16 by autocast. {wrong[0]} is "
                f"{str(dict(named)[wrong[0]].dtype).removeprefix('torch.')}, and its small steps would underflow."
            )
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self._sizes = [p.numel() for p in self.parameters]
        self._shapes = [p.shape for p in self.parameters]

    @property
    def dtype(self) -> torch.dtype:
        return self.parameters[0].dtype

    @property
    def size(self) -> int:
        return sum(self._sizes)

    def empty(self) -> Float[Tensor, " parameter"]:
        """A vector of zeros on the parameters' device."""
        first = self.parameters[0]
        return torch.zeros(self.size, dtype=first.dtype, device=first.device)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Parts of the vector in the shapes of the parameters; they share its memory."""
        parts = vector.split(self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def read(self) -> Float[Tensor, " parameter"]:
        """A copy of the weights."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters])

    def write(self, vector: Float[Tensor, " parameter"]) -> None:
        """Put weights into the module."""
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.views(vector))


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Evaluation mode in full precision; afterwards modes, buffers and random states are restored."""
    modes = [(child, child.training) for child in module.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    device = next(module.parameters()).device
    devices = [device] if device.type == "cuda" else []
    try:
        module.eval()
        # Dropout is off, so nothing should draw; a user's model may.
        with torch.random.fork_rng(devices=devices), torch.autocast(device.type, enabled=False), torch.enable_grad():
            yield
    finally:
        for child, mode in modes:
            child.training = mode
        for buffer, before in buffers:
            buffer.copy_(before)


def pass_losses(module: PreTrainedModel, objective: AbstractObjective, passes: Sequence[ModelPass]) -> dict[str, float]:
    """Sum of each term over the passes, in nats; forward only."""
    totals = dict.fromkeys(objective.term_weights, 0.0)
    with torch.no_grad():
        for each in passes:
            for name, term in each.loss(module, objective).items():
                totals[name] += float(term.total)
    return totals


def pass_gradients(
    module: PreTrainedModel,
    flat: FlatParameters,
    objective: AbstractObjective,
    passes: Sequence[ModelPass],
    used: set[int],
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Sum of each term over the passes and its gradient as a vector, both undivided.

    `.grad` is neither read nor written. The numbers of parameters that a term depends on are added to `used`.
    """
    names = list(objective.term_weights)
    totals = dict.fromkeys(names, 0.0)
    gradients = {name: flat.empty() for name in names}
    views = {name: flat.views(gradients[name]) for name in names}
    for each in passes:
        terms = each.loss(module, objective)
        for index, name in enumerate(names):
            totals[name] += float(terms[name].total.detach())
            keep = index + 1 < len(names)
            found = torch.autograd.grad(terms[name].total, flat.parameters, retain_graph=keep, allow_unused=True)
            _add(views[name], found, used)
    return totals, gradients


def _add(views: list[Tensor], found: Sequence[Tensor | None], used: set[int]) -> None:
    pairs = [(index, gradient) for index, gradient in enumerate(found) if gradient is not None]
    used.update(index for index, _ in pairs)
    torch._foreach_add_([views[index] for index, _ in pairs], [gradient for _, gradient in pairs])
