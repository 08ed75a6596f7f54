"""Run the upper blocks only: the lower ones return what they returned before, repeated for several variants."""

# B sentence, T token, D width, V variant

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ._model import Model


@dataclass(kw_only=True, slots=True, eq=False)
class BlockOutputs:
    """What each block returned in the first forward pass."""

    outputs: dict[tuple[str, int], Any] = field(default_factory=dict)
    """(stack, layer) → the block's output as it returned it."""


@contextmanager
def recorded_blocks(model: Model) -> Iterator[BlockOutputs]:
    """Keep what every block returns in the first forward pass inside, for `skipped_blocks`."""
    result = BlockOutputs()
    with ExitStack() as stack:
        for anatomy in model.anatomy.stacks:
            calls = deque(layer.index for layer in anatomy.layers)
            for block in {model.module.get_submodule(layer.block) for layer in anatomy.layers}:
                handle = block.register_forward_hook(_keep(result, anatomy.name, calls))
                stack.callback(handle.remove)
        yield result


def _keep(result: BlockOutputs, stack: str, calls: deque[int]) -> Callable[[nn.Module, Any, Any], None]:
    def keep(block: nn.Module, args: Any, output: Any) -> None:
        if calls:  # later calls are of other passes, such as a readout's
            result.outputs[stack, calls.popleft()] = output

    return keep


@contextmanager
def skipped_blocks(model: Model, recorded: BlockOutputs, stack: str, layer: int, variants: int) -> Iterator[None]:
    """Blocks that run before block `layer` of `stack` do not run: they return what was recorded.

    The model is to be called on the recorded batch repeated `variants` times (`x.repeat(variants, 1)`), and so are the
    recorded states. Everything between the blocks is the model's own code. A stack whose layers are one shared module
    (ALBERT) must start at its first layer, since a tap counts that module's calls.
    """
    names = [one.name for one in model.anatomy.stacks]
    skipped = [
        (one, index)
        for one in model.anatomy.stacks[: names.index(stack) + 1]
        for index in range(layer if one.name == stack else len(one.layers))
        if not one.shared
    ]
    with ExitStack() as restore:
        for one, index in skipped:
            block = model.module.get_submodule(one.layers[index].block)
            output = _repeated(recorded.outputs[one.name, index], variants)
            restore.enter_context(_returning(block, output))
        yield


def first_block(model: Model, stack: str, layer: int) -> tuple[str, int]:
    """The first block that has to run where `layer` of `stack` changes: 0 of a stack of shared layers."""
    return stack, 0 if model.anatomy.stack(stack).shared else layer


@contextmanager
def _returning(block: nn.Module, output: Any) -> Iterator[None]:
    saved = vars(block).get("forward")
    block.forward = lambda *args, **kwargs: output
    try:
        yield
    finally:
        if saved is None:
            del block.forward
        else:
            block.forward = saved


def _repeated(output: Any, variants: int) -> Any:
    """States, and what T5 hands on beside them (position biases, one per batch or one per sentence)."""
    if isinstance(output, Tensor):
        return output.repeat(variants, *[1] * (output.dim() - 1)) if output.dim() > 1 and variants > 1 else output
    if isinstance(output, tuple):
        batch = output[0].shape[0]
        return tuple(_repeated(part, variants) if _per_sentence(part, batch) else part for part in output)
    return output


def _per_sentence(part: Any, batch: int) -> bool:
    return isinstance(part, torch.Tensor) and part.dim() > 1 and part.shape[0] == batch
