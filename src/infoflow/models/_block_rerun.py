"""Rerun each block on its original input, edited or with other weights, without rerunning lower layers."""

# B sentence, T query token, S key token, D width

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import Cache

from infoflow.foundation import UserError

from ._attention import AttentionCall
from ._model import Model
from ._tap import tap

Edit = Callable[[AttentionCall], AttentionCall]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockRerun:
    """Outputs of one block on the same input."""

    kept: Float[Tensor, "sentence token width"]
    """The model's own output."""
    edited: tuple[Float[Tensor, "sentence token width"], ...]
    """One for each edit of this block's self-attention."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockUpdates:
    """The update of one block: its output minus its input."""

    own: Float[Tensor, "sentence token width"]
    others: tuple[Float[Tensor, "sentence token width"], ...]
    """Updates of the same block in other models, on the same input."""


def rerun_blocks(
    model: Model,
    stack: str,
    edits: Sequence[Edit],
    forward: Callable[[], Any],
) -> list[BlockRerun]:
    """The effect of edits to one block's self-attention on that block's output, for every block in one forward pass.

    Each block of `stack` runs on its input in the unedited model: unedited, and once for each of `edits`, applied to
    its self-attention. The next block receives the unedited output. So all layers cost one pass per edit, not one per
    edit and layer.

    Args:
        model: A loaded model; its blocks may be shared (ALBERT).
        stack: Stack whose blocks are rerun, "encoder" or "decoder".
        edits: Each takes a self-attention call and returns `call.edited(...)`; `without_token` is one.
        forward: Runs the model, or that stack of it, once; without a key-value cache.

    Returns:
        One entry per block, from the lowest.

    Raises:
        UserError: `forward` fills a key-value cache, to which a second run would append.

    >>> ids = torch.tensor([[5, 6, 7, 8]])
    >>> first = torch.tensor([0])
    >>> with torch.no_grad():
    ...     blocks = rerun_blocks(
    ...         model, "encoder", [lambda call: without_token(call, first)], lambda: model.module(ids)
    ...     )
    >>> len(blocks), bool((blocks[0].kept != blocks[0].edited[0]).any())
    (3, True)
    """
    layers, reruns = model.anatomy.stack(stack).layers, []
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
            # Not `block(...)`: hooks of other taps must see one run of the block.
            edited.append(_states(block.forward(*args, **kwargs)))
        applied = None
        reruns.append(BlockRerun(kept=_states(output), edited=tuple(edited)))

    modules = {model.module.get_submodule(layer.block) for layer in layers}
    with tap(model, on_attention=on_attention), _after(modules, again):
        forward()
    assert len(reruns) == len(layers), f"{len(reruns)} of {len(layers)} blocks ran"
    return reruns


def rerun_others(model: Model, others: Sequence[Model], stack: str, forward: Callable[[], Any]) -> list[BlockUpdates]:
    """The update of each block of other models on the input of the same block of `model`.

    Args:
        model: The model that provides the states.
        others: Models of the same architecture: other weights, or other checkpoints of its training.
        stack: Stack whose blocks run, "encoder" or "decoder".
        forward: Runs `model`, or that stack of it, once; without a key-value cache.

    Returns:
        One entry per block, from the lowest.

    Raises:
        UserError: `forward` fills a key-value cache, or another model has a different number of blocks.
    """
    layers, found = model.anatomy.stack(stack).layers, list[BlockUpdates]()
    for other in others:
        if len(other.anatomy.stack(stack).layers) != len(layers):
            raise UserError(
                f"{other.name} has a different number of blocks from {model.name}. Compare models of the same shape."
            )

    def again(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        _require_no_cache(model, [*args, *kwargs.values()])
        states = args[0] if args else kwargs["hidden_states"]
        path = layers[len(found)].block
        theirs = [_states(other.module.get_submodule(path).forward(*args, **kwargs)) for other in others]
        found.append(BlockUpdates(own=_states(output) - states, others=tuple(each - states for each in theirs)))

    with _after({model.module.get_submodule(layer.block) for layer in layers}, again):
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
    return call.edited(mask=torch.where(forbidden[:, None], torch.finfo(mask.dtype).min, mask))


def _states(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def _require_no_cache(model: Model, given: list[Any]) -> None:
    if any(isinstance(value, Cache) for value in given):
        raise UserError(
            f"{model.name} fills a key-value cache, but its blocks must run twice on the same input. Call it with "
            "use_cache=False, as model_inputs does."
        )


@contextmanager
def _after(
    blocks: set[nn.Module], hook: Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]
) -> Iterator[None]:
    handles = [block.register_forward_hook(hook, with_kwargs=True) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
