"""The attention function that a tapped model uses.

Hugging Face models look up their attention function by name at every call. Under the name `infoflow` they find
`_tapped_attention`, which computes what every family's eager attention computes and passes each call to the listeners.
Families that never look it up compute attention in their own code, which is observed instead: listeners see calls of
the same form.
"""

# B batch, H query head, G key/value head, T query token, S key token, d head width

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from infoflow._transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig

from ._anatomy import OwnCode
from ._attention_call import AttentionCall, attention_weights
from ._own_attention import OwnCall, watching_own_attention

IMPLEMENTATION = "infoflow"
_BY_BLOCKS = "infoflow-blocks"  # the same, with a mask that is made for each block of queries

Listener = Callable[[AttentionCall], AttentionCall]
"""Receives a call (its site not yet known) and returns it, edited or not."""

_LISTENERS: WeakKeyDictionary[nn.Module, list[Listener]] = WeakKeyDictionary()
_WATCHED: WeakSet[nn.Module] = WeakSet()
"""Attentions with their own code that are already observed, since taps may be nested."""
_QUERY_BLOCK: ContextVar[int | None] = ContextVar("query_block", default=None)
"""Number of queries whose attention is computed at a time; None: all."""


def _tapped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: "Tensor | _MaskByRows | None",
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **ignored: Any,
) -> tuple[Tensor, Tensor]:
    group = query.shape[1] // max(1, key.shape[1])  # a pruned layer may have no head
    whole = AttentionCall(
        module=module,
        num_key_value_heads=key.shape[1],
        query=query,
        key=key.repeat_interleave(group, dim=1) if group > 1 else key,
        value=value.repeat_interleave(group, dim=1) if group > 1 else value,
        mask=None if isinstance(attention_mask, _MaskByRows) else _additive(attention_mask, query.dtype),
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        dropout=dropout,
        position_bias=position_bias,
        softcap=softcap,
        weights=query,
        sinks=s_aux,
        num_queries=query.shape[2],
    )
    if _QUERY_BLOCK.get() is None:
        call = attended(whole)
        return call.context().transpose(1, 2).contiguous(), call.weights
    batch, heads, _, width = whole.value.shape
    # One tensor from the start: small results kept between large temporary ones fragment memory, by gigabytes.
    contexts_BTHd = whole.value.new_empty(batch, whole.num_queries, heads, width)
    for block in _blocks(whole, attention_mask):
        context = attended(block).context()
        contexts_BTHd[:, block.start : block.start + context.shape[2]] = context.transpose(1, 2)
    return contexts_BTHd, query.new_empty(0)


def _blocks(whole: AttentionCall, mask: "Tensor | _MaskByRows | None") -> Iterator[AttentionCall]:
    """The call in blocks of queries, each with its part of the mask and the bias."""
    size = _QUERY_BLOCK.get()
    assert size is not None
    assert whole.query is not None
    for start in range(0, whole.num_queries, size):
        rows = slice(start, min(start + size, whole.num_queries))
        if isinstance(mask, _MaskByRows):
            own = _additive(mask.rows(rows), whole.query.dtype)
        else:
            own = whole.mask if whole.mask is None else whole.mask[:, :, rows]
        bias = whole.position_bias if whole.position_bias is None else whole.position_bias[:, :, rows]
        query, masks = whole.query[:, :, rows], (mask, whole.position_bias)
        yield replace(whole, query=query, mask=own, position_bias=bias, start=start, whole_masks=masks)


class _MaskByRows:
    """A mask (B, 1, T, S) whose rows Transformers' own function makes when they are needed."""

    def __init__(self, **arguments: Any) -> None:
        skips = dict.fromkeys(("allow_is_causal_skip", "allow_is_bidirectional_skip"), False)
        self._arguments = {"q_offset": 0, **arguments, **skips}

    def rows(self, rows: slice) -> Tensor:
        """The mask for these queries, true where they may attend."""
        from transformers.masking_utils import sdpa_mask  # slow import

        part = {"q_offset": self._arguments["q_offset"] + rows.start, "q_length": rows.stop - rows.start}
        mask = sdpa_mask(**{**self._arguments, **part})
        assert mask is not None
        return mask


def attended(call: AttentionCall) -> AttentionCall:
    """The call with its weights, after its module's listeners have seen it."""
    call = replace(call, weights=attention_weights(call))
    for listener in _LISTENERS.get(call.module, ()):
        call = listener(call)
    return call


def own_call(seen: OwnCall, code: OwnCode) -> AttentionCall:
    """An attention that a family's own code computed, in the form of an ordinary call."""
    group = seen.weights.shape[1] // max(1, seen.value.shape[1])
    # Half precision: as for the tapped attention's weights.
    weights = seen.weights.to(torch.promote_types(seen.weights.dtype, torch.float32))
    query = key = None
    mask = seen.scores
    if code.scaling is not None and seen.query is not None and seen.key is not None:
        query, key = seen.query, seen.key.repeat_interleave(seen.query.shape[1] // seen.key.shape[1], dim=1)
        mask = mask - (query @ key.mT) * code.scaling
    return AttentionCall(
        module=seen.module,
        num_key_value_heads=seen.value.shape[1],
        query=query,
        key=key,
        value=seen.value.repeat_interleave(group, dim=1) if group > 1 else seen.value,
        mask=mask,
        scaling=1.0 if code.scaling is None else code.scaling,
        dropout=seen.dropout,
        weights=weights,
    )


@contextmanager
def _watching(own: Mapping[nn.Module, OwnCode]) -> Iterator[None]:
    """Report to the listeners the attention that these modules compute in their own code."""
    new = {module: code for module, code in own.items() if module not in _WATCHED}

    def show(seen: OwnCall) -> Tensor | None:
        call = shown = own_call(seen, new[seen.module])
        for listener in _LISTENERS.get(seen.module, ()):
            shown = listener(shown)
        same = shown.weights is call.weights and shown.value is call.value and shown.replaced_context is None
        # With gradients, the heads must be computed from the weights shown: some listeners need gradients with respect
        # to them.
        return None if same and not torch.is_grad_enabled() else shown.context()

    with ExitStack() as stack:
        if new:
            for module in new:
                _WATCHED.add(module)
                stack.callback(_WATCHED.discard, module)
            stack.enter_context(watching_own_attention({one: code.num_heads for one, code in new.items()}, show))
        yield


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A user's Boolean 4-D mask (True: attend) as an additive one; eager attention would add its zeros and ones."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


@cache
def _register() -> None:
    """Register the tapped attention with transformers."""
    from transformers.masking_utils import eager_mask  # slow import

    for name, mask in ((IMPLEMENTATION, eager_mask), (_BY_BLOCKS, _MaskByRows)):
        AttentionInterface.register(name, _tapped_attention)
        AttentionMaskInterface.register(name, mask)


@contextmanager
def listening(
    module: nn.Module,
    listeners: dict[nn.Module, Listener],
    own: Mapping[nn.Module, OwnCode] | None = None,
    query_block: int | None = None,
) -> Iterator[None]:
    """Run `module` through the tapped attention; each attention module's calls go to its listener.

    `own` lists the attention modules with their own code. With `query_block` the other modules process at most that
    many queries at a time. On exit, even after an error, every configuration gets its attention implementation back.
    """
    _register()
    saved = _implementations(module)
    block = _QUERY_BLOCK.set(query_block)
    try:
        for config, _ in saved:
            config._attn_implementation_internal = IMPLEMENTATION if query_block is None else _BY_BLOCKS
        for attention, listener in listeners.items():
            _LISTENERS.setdefault(attention, []).append(listener)
        with _watching(own or {}):
            yield
    finally:
        _QUERY_BLOCK.reset(block)
        for attention, listener in listeners.items():
            registered = _LISTENERS.get(attention, [])
            if listener in registered:
                registered.remove(listener)
            if not registered:
                _LISTENERS.pop(attention, None)
        for config, implementation in saved:
            config._attn_implementation_internal = implementation


def _implementations(module: nn.Module) -> list[tuple[PreTrainedConfig, str | None]]:
    """Every configuration that some submodule reads, with its attention implementation.

    `set_attn_implementation` visits declared sub-configurations only and warns if a family fixes its choice; the tap
    must reach, and restore, exactly the objects that the attention modules read.
    """
    found = (getattr(child, "config", None) for child in module.modules())
    configs = {id(config): config for config in found if isinstance(config, PreTrainedConfig)}
    return [(config, config._attn_implementation_internal) for config in configs.values()]
