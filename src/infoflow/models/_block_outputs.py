"""Run the upper blocks only: the lower ones return their recorded outputs, repeated for several variants.

In the first block that runs, the first attention reads the same states in every variant, so its heads are recorded too:
it runs from the output projection on.
"""

# B sentence, T token, D width, V variant

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ._anatomy import Attention
from ._model import Model


@dataclass(kw_only=True, slots=True, eq=False)
class AttentionOutput:
    """Records of a block's first attention in the first forward pass."""

    attention: Attention
    output: Any = None  # of the module that calls the attention function
    heads: Tensor | None = None  # (B, T, head and its width), on their way to the output projection and its hooks
    projected: Tensor | None = None  # (B, T, D), output of the output projection


@dataclass(kw_only=True, slots=True, eq=False)
class BlockOutputs:
    """Output of each block in the first forward pass, and its first attention."""

    outputs: dict[tuple[str, int], Any] = field(default_factory=dict)
    """(stack, layer) → the block's output."""
    attentions: dict[tuple[str, int], AttentionOutput] = field(default_factory=dict)
    """(stack, layer) → the block's self-attention; empty if layers share their modules."""


@contextmanager
def recorded_blocks(model: Model) -> Iterator[BlockOutputs]:
    """Record every block's output in the first forward pass inside, for `skipped_blocks`."""
    result = BlockOutputs()
    with ExitStack() as stack:
        for anatomy in model.anatomy.stacks:
            calls = deque(layer.index for layer in anatomy.layers)
            for block in {model.module.get_submodule(layer.block) for layer in anatomy.layers}:
                handle = block.register_forward_hook(_keep(result, anatomy.name, calls))
                stack.callback(handle.remove)
            for layer in () if anatomy.shared else anatomy.layers:
                kept = AttentionOutput(attention=layer.attentions["self"])
                result.attentions[anatomy.name, layer.index] = kept
                for handle in _keep_attention(model, kept):
                    stack.callback(handle.remove)
        yield result


def _keep(result: BlockOutputs, stack: str, calls: deque[int]) -> Callable[[nn.Module, Any, Any], None]:
    def keep(block: nn.Module, args: Any, output: Any) -> None:
        if calls:  # later calls belong to other passes, such as a readout's
            result.outputs[stack, calls.popleft()] = output

    return keep


def _keep_attention(model: Model, kept: AttentionOutput) -> Iterator[RemovableHandle]:
    def keep_output(module: nn.Module, args: Any, output: Any) -> None:
        if kept.output is None:
            kept.output = output

    def keep_heads(projection: nn.Module, args: Any) -> None:
        if kept.heads is None:
            kept.heads = args[0]

    def keep_projected(projection: nn.Module, args: Any, output: Tensor) -> None:
        if kept.projected is None:
            kept.projected = output

    projection = model.module.get_submodule(kept.attention.output_projection)
    yield model.module.get_submodule(kept.attention.module).register_forward_hook(keep_output)
    # Before other hooks: their changes are repeated when the recorded heads go through the projection.
    yield projection.register_forward_pre_hook(keep_heads, prepend=True)
    yield projection.register_forward_hook(keep_projected)


@contextmanager
def skipped_blocks(
    model: Model, recorded: BlockOutputs, stack: str, layer: int, variants: int, *, keep_heads: bool = True
) -> Iterator[None]:
    """Skips the blocks before block `layer` of `stack`, which return their recorded outputs.

    In that block's self-attention only the output projection runs, on the recorded heads; with `keep_heads=False` all
    of it does.

    Call the model on the recorded batch repeated `variants` times (`x.repeat(variants, 1)`), like the recorded states.
    Everything between the blocks is the model's own code. A stack whose layers are one shared module (ALBERT) must
    start at its first layer, since a tap counts that module's calls.
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
            restore.enter_context(returning(block, lambda output=output: output))
        if keep_heads and (kept := recorded.attentions.get((stack, layer))):
            restore.enter_context(_kept_heads(model, kept, variants))
        yield


def first_block(model: Model, stack: str, layer: int) -> tuple[str, int]:
    """The first block that has to run if `layer` of `stack` changes: 0 in a stack of shared layers."""
    return stack, 0 if model.anatomy.stack(stack).shared else layer


@contextmanager
def _kept_heads(model: Model, kept: AttentionOutput, variants: int) -> Iterator[None]:
    """The attention passes its recorded heads to the output projection, inside it (GPT-2) or outside (BERT).

    An attention that does more with the projected heads (a residual connection, a norm) runs normally.
    """
    module = model.module.get_submodule(kept.attention.module)
    first = kept.output[0] if isinstance(kept.output, tuple) else kept.output
    if kept.heads is None or not isinstance(first, Tensor):
        yield
    elif _same(first, kept.heads):
        output = _repeated(kept.output, variants)
        with returning(module, lambda: output):
            yield
    elif _same(first, kept.projected):
        projection = model.module.get_submodule(kept.attention.output_projection)
        heads = _repeated(kept.heads, variants)
        rest = _repeated(kept.output, variants)[1:] if isinstance(kept.output, tuple) else None
        with returning(module, lambda: projection(heads) if rest is None else (projection(heads), *rest)):
            yield
    else:
        yield


def _same(one: Tensor, other: Tensor | None) -> bool:
    return other is not None and one.shape == other.shape and torch.equal(one, other)


@contextmanager
def returning(module: nn.Module, output: Callable[[], Any]) -> Iterator[None]:
    """The module only returns the value of `output`."""
    saved = vars(module).get("forward")
    module.forward = lambda *args, **kwargs: output()
    try:
        yield
    finally:
        if saved is None:
            del module.forward
        else:
            module.forward = saved


def _repeated(output: Any, variants: int) -> Any:
    """States, with T5's position biases (one per batch or one per sentence)."""
    if isinstance(output, Tensor):
        return output.repeat(variants, *[1] * (output.dim() - 1)) if output.dim() > 1 and variants > 1 else output
    if isinstance(output, tuple):
        batch = output[0].shape[0]
        return tuple(_repeated(part, variants) if _per_sentence(part, batch) else part for part in output)
    return output


def _per_sentence(part: Any, batch: int) -> bool:
    return isinstance(part, torch.Tensor) and part.dim() > 1 and part.shape[0] == batch
