"""Runs of parts of a model: the upper blocks on recorded outputs, or single blocks on their original input."""

# B sentence, T token, D width, V variant
# B sentence, T query token, S key token, D width

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from infoflow._transformers import Cache
from infoflow.foundation import UserError

from ._anatomy import Attention
from ._attention_call import AttentionCall
from ._model import Model
from ._modules import hooked, returning, run_again, shared_keys, states_of, states_read, with_states
from ._tap import tap

# Run the upper blocks only: the lower ones return their recorded outputs, repeated for several variants.
#
# In the first block that runs, the first attention reads the same states in every variant, so its heads are recorded
# too: it runs from the output projection on.


@dataclass(kw_only=True, slots=True, eq=False)
class AttentionOutput:
    """Output of a block's first attention in the first forward pass."""

    attention: Attention
    output: Any = None  # output of the module that calls the attention function
    heads: Tensor | None = None  # (B, T, head and its width), on their way to the output projection and its hooks
    projected: Tensor | None = None  # (B, T, D), output of the output projection


@dataclass(kw_only=True, slots=True, eq=False)
class BlockOutputs:
    """Output of each block in the first forward pass, and its first attention."""

    outputs: dict[tuple[str, int], Any] = field(default_factory=dict)
    """(stack, layer) → the block's output."""
    shared: dict[tuple[str, int], dict[str, dict[str, Any]]] = field(default_factory=dict)
    """(stack, layer) → keys and values that later blocks attend to as well, from this block and those below."""
    attentions: dict[tuple[str, int], AttentionOutput] = field(default_factory=dict)
    """(stack, layer) → the block's self-attention; empty if layers share their modules."""


@contextmanager
def recorded_blocks(model: Model) -> Iterator[BlockOutputs]:
    """Record every block's output in the first forward pass inside the `with` block, for `skipped_blocks`."""
    result = BlockOutputs()
    with ExitStack() as stack:
        for anatomy in model.anatomy.stacks:
            calls = deque(layer.index for layer in anatomy.layers)
            for block in {model.module.get_submodule(layer.block) for layer in anatomy.layers}:
                stack.enter_context(block.register_forward_hook(_keep(result, anatomy.name, calls), with_kwargs=True))
            for layer in () if anatomy.shared else anatomy.layers:
                if "self" not in layer.attentions:
                    continue
                kept = AttentionOutput(attention=layer.attentions["self"])
                result.attentions[anatomy.name, layer.index] = kept
                stack.enter_context(hooked(_keep_attention(model, kept)))
        yield result


def _keep(result: BlockOutputs, stack: str, calls: deque[int]) -> Callable[..., None]:
    def keep(block: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if calls:  # later calls belong to other passes, such as a readout's
            layer = calls.popleft()
            result.outputs[stack, layer], result.shared[stack, layer] = output, shared_keys(kwargs)

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
    """Skip the blocks before block `layer` of `stack`, which return their recorded outputs.

    In that block's self-attention only the output projection runs, on the recorded heads. With `keep_heads=False` the
    whole self-attention runs.

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
            output = recorded.outputs[one.name, index]
            output = _repeated(with_states(output, one.joined(states_of(output))), variants)
            output = with_states(output, one.parted(states_of(output)))
            shared = _repeated(recorded.shared[one.name, index], variants)
            restore.enter_context(returning(block, lambda output=output: output, shared))
        if keep_heads and (kept := recorded.attentions.get((stack, layer))):
            shared = _repeated(recorded.shared[stack, layer], variants)
            restore.enter_context(_kept_heads(model, kept, variants, shared))
        yield


def first_block(model: Model, stack: str, layer: int) -> tuple[str, int]:
    """The first block that has to run if `layer` of `stack` changes; 0 in a stack of shared layers."""
    return stack, 0 if model.anatomy.stack(stack).shared else layer


@contextmanager
def _kept_heads(model: Model, kept: AttentionOutput, variants: int, shared: dict[str, Any]) -> Iterator[None]:
    """Let the attention pass its recorded heads to the output projection, inside it (GPT-2) or outside (BERT).

    An attention that does more with the projected heads (a residual connection, a norm) runs normally.
    """
    module = model.module.get_submodule(kept.attention.module)
    first = kept.output[0] if isinstance(kept.output, tuple) else kept.output
    if isinstance(first, Tensor) and _same(first, kept.heads):
        output = _repeated(kept.output, variants)
        with returning(module, lambda: output, shared):
            yield
    elif isinstance(first, Tensor) and kept.heads is not None and _same(first, kept.projected):
        projection = model.module.get_submodule(kept.attention.output_projection)
        heads = _repeated(kept.heads, variants)
        rest = _repeated(kept.output, variants)[1:] if isinstance(kept.output, tuple) else None
        with returning(module, lambda: projection(heads) if rest is None else (projection(heads), *rest), shared):
            yield
    else:
        yield


def _same(one: Tensor, other: Tensor | None) -> bool:
    return other is not None and one.shape == other.shape and torch.equal(one, other)


def _repeated(output: Any, variants: int) -> Any:
    """States, T5's position biases (one per batch or one per sentence), or shared keys and values, repeated."""
    if isinstance(output, dict):
        return {name: _repeated(part, variants) for name, part in output.items()}
    if isinstance(output, Tensor):
        return output.repeat(variants, *[1] * (output.dim() - 1)) if output.dim() > 1 and variants > 1 else output
    if isinstance(output, tuple):
        batch = output[0].shape[0]
        per_sentence = [isinstance(one, Tensor) and one.dim() > 1 and one.shape[0] == batch for one in output]
        return tuple(_repeated(one, variants) if own else one for one, own in zip(output, per_sentence, strict=True))
    return output


Edit = Callable[[AttentionCall], AttentionCall]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockRerun:
    """Outputs of one block on the same input."""

    kept: Float[Tensor, "sentence token width"]
    """The block's output without edits."""
    edited: tuple[Float[Tensor, "sentence token width"], ...]
    """The block's output for each edit of its self-attention."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockUpdates:
    """The update of one block: its output minus its input."""

    own: Float[Tensor, "sentence token width"]
    others: tuple[Float[Tensor, "sentence token width"], ...]
    """Updates of the same block in other models, on the same input."""


def rerun_blocks(model: Model, stack: str, edits: Sequence[Edit], forward: Callable[[], Any]) -> list[BlockRerun]:
    """The effect of edits to one block's self-attention on that block's output, for every block in one forward pass.

    Each block of `stack` runs on its input in the unedited model: once without edits, and once for each of `edits`,
    which changes its self-attention. The next block receives the unedited output. So all layers together cost one pass
    per edit, not one per edit and layer. The result has one entry per block, from the lowest.

    Blocks may be shared (ALBERT). Each of `edits` takes a self-attention call and returns `call.edited(...)`, as
    `without_token` does. `forward` runs the model, or only that stack, once, without a key-value cache.

    >>> ids = torch.tensor([[5, 6, 7, 8]])
    >>> first = torch.tensor([0])
    >>> with torch.no_grad():
    ...     blocks = rerun_blocks(
    ...         model, "encoder", [lambda call: without_token(call, first)], lambda: model.module(ids)
    ...     )
    >>> len(blocks), bool((blocks[0].kept != blocks[0].edited[0]).any())
    (3, True)
    """
    own, reruns = model.anatomy.stack(stack), []
    applied: Edit | None = None

    def on_attention(call: AttentionCall) -> AttentionCall | None:
        here = (call.stack, call.kind) == (stack, "self")
        return applied(call) if here and applied is not None else None

    def again(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        nonlocal applied
        _require_no_cache(model, [*args, *kwargs.values()])
        edited = []
        for edit in edits:
            applied = edit
            edited.append(own.joined(run_again(block, args, kwargs)))
        applied = None
        reruns.append(BlockRerun(kept=own.joined(states_of(output)), edited=tuple(edited)))

    blocks = {model.module.get_submodule(layer.block) for layer in own.layers}
    hooks = (block.register_forward_hook(again, with_kwargs=True) for block in blocks)
    with tap(model, on_attention=on_attention), hooked(hooks):
        forward()
    assert len(reruns) == len(own.layers), f"{len(reruns)} of {len(own.layers)} blocks ran"
    return reruns


def rerun_others(model: Model, others: Sequence[Model], stack: str, forward: Callable[[], Any]) -> list[BlockUpdates]:
    """The update of each block of other models on the input of the same block of `model`, from the lowest.

    The other models have the same architecture with other weights, such as earlier checkpoints. `stack` and `forward`
    are as in `rerun_blocks`.
    """
    layers, found = model.anatomy.stack(stack).layers, list[BlockUpdates]()
    joined = model.anatomy.stack(stack).joined
    for other in others:
        if len(other.anatomy.stack(stack).layers) != len(layers):
            raise UserError(
                f"{other.name} has a different number of blocks from {model.name}. Compare models of the same shape."
            )

    def again(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        _require_no_cache(model, [*args, *kwargs.values()])
        states, path = joined(states_read(args, kwargs)), layers[len(found)].block
        theirs = [joined(run_again(other.module.get_submodule(path), args, kwargs)) - states for other in others]
        found.append(BlockUpdates(own=joined(states_of(output)) - states, others=tuple(theirs)))

    blocks = {model.module.get_submodule(layer.block) for layer in layers}
    with hooked(block.register_forward_hook(again, with_kwargs=True) for block in blocks):
        forward()
    assert len(found) == len(layers), f"{len(found)} of {len(layers)} blocks ran"
    return found


def without_token(call: AttentionCall, token: Int[Tensor, " sentence"]) -> AttentionCall:
    r"""The call with one token of each sentence removed as key and value.

    $$ a'_{qk} = \frac{a_{qk}\,[k \neq t]}{\sum_{j \neq t} a_{qj}} $$

    | symbol     | here           | space                                     |
    |------------|----------------|-------------------------------------------|
    | $a_{qk}$   | `call.weights` | [0, 1], rows sum to 1                     |
    | $t$        | `token`        | column of the key, padding counted        |
    | $a'_{qk}$  | returned       | rows sum to 1, 0 at $k = t$               |

    The token's own query stays, and padding and causal masks are kept. A query that sees only the token (the first of a
    causal sentence: the token itself) gets finite, meaningless weights: ignore its output.

    Source: [@voita2019evolution].
    """
    hidden_BS = torch.arange(call.value.shape[2], device=token.device) == token.unsqueeze(1)
    return without_edges(call, hidden_BS[:, None])


def without_edges(call: AttentionCall, forbidden: Bool[Tensor, "#sentence #token key"]) -> AttentionCall:
    r"""The call with some edges from a query to a key forbidden, in all heads.

    $$ a'_{qk} = \frac{a_{qk}\,[(q, k) \notin F]}{\sum_{(q, j) \notin F} a_{qj}} $$

    \(F\) is `forbidden`. A query that loses every key gets finite, meaningless weights.

    Source: [@geva2023dissecting], attention knock-out.
    """
    mask = call.value.new_zeros(1, 1, 1, 1) if call.mask is None else call.mask
    # The lowest finite number, not -inf and not a sum of two: a fully masked row must not become NaN.
    forbidden = forbidden.to(mask.device)  # the layer's device, if accelerate spreads a model over several
    return call.edited(mask=torch.where(forbidden[:, None], torch.finfo(mask.dtype).min, mask))


def _require_no_cache(model: Model, given: list[Any]) -> None:
    if any(isinstance(value, Cache) for value in given):
        raise UserError(
            f"{model.name} fills a key-value cache, but its blocks must run twice on the same input. Call it with "
            "use_cache=False, as model_inputs does."
        )
