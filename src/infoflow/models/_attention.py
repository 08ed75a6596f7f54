"""The attention function that a tapped model uses.

Hugging Face models look up their attention function by name at every call. Under the name `infoflow` they find
`_tapped_attention`, which computes what every family's eager attention computes and passes each call to the listeners.
Families that never look it up compute attention in their own code, which is observed instead: listeners see the same
calls.
"""

# B batch, H query head, G key/value head, T query token, S key token, d head width

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedConfig
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from ._anatomy import OwnCode
from ._own_attention import OwnCall, watching_own_attention

IMPLEMENTATION = "infoflow"

_MASKED = -5_000.0  # families mask with -10,000, a precision's lowest number or -inf; their biases are far above


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Where an attention call happens: stack "encoder" or "decoder", kind "self" or "cross", layer from 0."""

    stack: str
    kind: str
    layer: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OtherKeys:
    """Keys and values that only some queries use: Longformer's global tokens."""

    rows: Tensor  # (B, T), true for these queries
    key: Tensor  # (B, H, S, d)
    value: Tensor

    def where(self, theirs: Tensor, rest: Tensor) -> Tensor:
        """Selects `theirs` for these queries, of two tensors (B, H, T, ...)."""
        return torch.where(self.rows[:, None, :, None], theirs, rest)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionCall:
    r"""One call of an attention module, between its projections.

    $$ A = \mathrm{softmax}(\mathrm{cap}(s\, q k^\top) + p + m), \qquad \mathrm{ctx} = \mathrm{dropout}(A)\, v $$

    | symbol | here | space |
    |---|---|---|
    | $q$ | `query` | (B, H, T, d) |
    | $k, v$ | `key`, `value` | (B, H, S, d), grouped heads already repeated |
    | $s$ | `scaling` | number |
    | $\mathrm{cap}$ | `softcap` | $c \tanh(x / c)$, Gemma 2 only |
    | $p$ | `position_bias` | (1 or B, H, T, S), T5 only |
    | $m$ | `mask` | additive, (B, 1, T, S), lowest finite number where masked |
    | $A$ | `weights` | (B, H, T, S), before dropout; rows sum to 1, or to less if there are sinks |
    | $\mathrm{ctx}$ | `context()` | (B, H, T, d) |

    In a family with its own attention code, `mask` is everything added to $s\, q k^\top$, (B, H, T, S). If its scores
    are not such a product plus constants (DeBERTa's mix content and position), `query` and `key` are None and `mask` is
    the scores. Longformer's global tokens, if any, use `others` instead of `key` and `value`. A learned sink (gpt-oss)
    is one more key without a value: its score `sinks` (H,) takes part in the softmax, and its weight is left out.

    To edit a call, return `call.edited(...)` from `on_attention`.
    """

    site: Site
    module: nn.Module
    num_key_value_heads: int
    query: Tensor | None
    key: Tensor | None
    value: Tensor
    mask: Tensor | None
    scaling: float
    dropout: float
    position_bias: Tensor | None
    softcap: float | None
    weights: Tensor
    replaced_context: Tensor | None = None
    others: OtherKeys | None = None
    sinks: Tensor | None = None

    @property
    def stack(self) -> str:
        return self.site.stack

    @property
    def kind(self) -> str:
        return self.site.kind

    @property
    def layer(self) -> int:
        return self.site.layer

    def visible(self) -> Bool[Tensor, "batch query key"]:
        """Keys visible to some head, from the mask: padding, later tokens and those outside a sliding window are
        hidden.
        """
        visible = self.weights.new_ones((), dtype=torch.bool)
        for added in (self.mask, self.position_bias):
            if added is not None and added.shape[1]:  # a pruned layer may have no head
                visible = visible & (added.amax(1) > _MASKED)
        batch, _, queries, keys = self.weights.shape
        return visible.expand(batch, queries, keys)

    def edited(self, **changes: Any) -> "AttentionCall":
        """The call with some of `query`, `key`, `value`, `mask`, `position_bias`, `weights`, `context` replaced.

        A changed query, key, mask or position bias recomputes the weights; given `weights` are used unchanged, and a
        given `context` (B, H, T, d) becomes the heads' output whatever the weights.
        """
        if "context" in changes:
            changes["replaced_context"] = changes.pop("context")
        call = replace(self, **changes)
        if "weights" not in changes and changes.keys() & {"query", "key", "mask", "position_bias"}:
            call = replace(call, weights=attention_weights(call))
        return call

    def context(self) -> Tensor:
        """Heads' outputs (B, H, T, d), the input of the output projection."""
        if self.replaced_context is not None:
            return self.replaced_context
        weights = nn.functional.dropout(self.weights, p=self.dropout, training=self.module.training)
        context = weights.to(self.value.dtype) @ self.value
        if self.others is None:
            return context
        return self.others.where(weights.to(self.value.dtype) @ self.others.value, context)


def attention_weights(call: AttentionCall) -> Float[Tensor, "batch head query key"]:
    """Post-softmax weights of a call, before dropout, in float32 or wider whatever the model's precision."""
    scores = _scores(call)
    # Half precision needs a float32 softmax; float64 must stay: its lowest number is -inf in float32, and a fully
    # masked row (left padding) would become NaN, as in some families' own eager attention.
    precision = torch.promote_types(scores.dtype, torch.float32)
    if call.sinks is None:
        return scores.softmax(dim=-1, dtype=precision)
    sinks = call.sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sinks], dim=-1).softmax(dim=-1, dtype=precision)[..., :-1]


def _scores(call: AttentionCall) -> Tensor:
    if call.query is None or call.key is None:
        assert call.mask is not None, "scores that are no product lie in the mask"
        return call.mask
    scores = (call.query @ call.key.mT) * call.scaling
    if call.others is not None:
        scores = call.others.where((call.query @ call.others.key.mT) * call.scaling, scores)
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    if call.position_bias is not None:
        scores = scores + call.position_bias
    if call.mask is not None:
        scores = scores + call.mask
    return scores


Listener = Callable[[AttentionCall], AttentionCall]
"""Receives a call (its site not yet known) and returns it, edited or not."""

_UNKNOWN = Site(stack="?", kind="?", layer=-1)
_LISTENERS: WeakKeyDictionary[nn.Module, list[Listener]] = WeakKeyDictionary()
_WATCHED: WeakSet[nn.Module] = WeakSet()
"""Attentions with their own code that are already observed: taps nest."""


def _tapped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **ignored: Any,
) -> tuple[Tensor, Tensor]:
    group = query.shape[1] // max(1, key.shape[1])  # a pruned layer may have no head
    call = AttentionCall(
        site=_UNKNOWN,
        module=module,
        num_key_value_heads=key.shape[1],
        query=query,
        key=key.repeat_interleave(group, dim=1) if group > 1 else key,
        value=value.repeat_interleave(group, dim=1) if group > 1 else value,
        mask=_additive(attention_mask, query.dtype),
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        dropout=dropout,
        position_bias=position_bias,
        softcap=softcap,
        weights=query,
        sinks=s_aux,
    )
    call = attended(call)
    return call.context().transpose(1, 2).contiguous(), call.weights


def attended(call: AttentionCall) -> AttentionCall:
    """The call with its weights, after its module's listeners."""
    call = replace(call, weights=attention_weights(call))
    for listener in _LISTENERS.get(call.module, ()):
        call = listener(call)
    return call


def unplaced_call(
    module: nn.Module,
    heads: tuple[Tensor, Tensor, Tensor],
    *,
    mask: Tensor,
    scaling: float,
    dropout: float,
    position_bias: Tensor | None = None,
    others: OtherKeys | None = None,
) -> AttentionCall:
    """A call of queries, keys and values (B, H, T, d), without site and weights."""
    query, key, value = heads
    return AttentionCall(
        site=_UNKNOWN,
        module=module,
        num_key_value_heads=key.shape[1],
        query=query,
        key=key,
        value=value,
        mask=mask,
        scaling=scaling,
        dropout=dropout,
        position_bias=position_bias,
        softcap=None,
        weights=query,
        others=others,
    )


def own_call(seen: OwnCall, code: OwnCode) -> AttentionCall:
    """A family's own computation as an ordinary call."""
    group = seen.weights.shape[1] // max(1, seen.value.shape[1])
    # Half precision: as for the tapped attention's weights.
    weights = seen.weights.to(torch.promote_types(seen.weights.dtype, torch.float32))
    query = key = None
    mask = seen.scores
    if code.scaling is not None and seen.query is not None and seen.key is not None:
        query, key = seen.query, seen.key.repeat_interleave(seen.query.shape[1] // seen.key.shape[1], dim=1)
        mask = mask - (query @ key.mT) * code.scaling
    return AttentionCall(
        site=_UNKNOWN,
        module=seen.module,
        num_key_value_heads=seen.value.shape[1],
        query=query,
        key=key,
        value=seen.value.repeat_interleave(group, dim=1) if group > 1 else seen.value,
        mask=mask,
        scaling=1.0 if code.scaling is None else code.scaling,
        dropout=seen.dropout,
        position_bias=None,
        softcap=None,
        weights=weights,
    )


@contextmanager
def _watching(own: Mapping[nn.Module, OwnCode]) -> Iterator[None]:
    """Pass these attentions' own computations to the listeners."""
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
    """A user's own Boolean 4-D mask (True: attend) as an additive one; eager attention would add its 0s and 1s."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


AttentionInterface.register(IMPLEMENTATION, _tapped_attention)
AttentionMaskInterface.register(IMPLEMENTATION, eager_mask)


@contextmanager
def listening(
    module: nn.Module, listeners: dict[nn.Module, Listener], own: Mapping[nn.Module, OwnCode] | None = None
) -> Iterator[None]:
    """Run `module` through the tapped attention; each attention module's calls go to its listener.

    `own` lists the attention modules with their own code. On exit, even after an error, every configuration gets its
    attention implementation back.
    """
    saved = _implementations(module)
    try:
        for config, _ in saved:
            config._attn_implementation_internal = IMPLEMENTATION
        for attention, listener in listeners.items():
            _LISTENERS.setdefault(attention, []).append(listener)
        with _watching(own or {}):
            yield
    finally:
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
    configs = {
        id(config): config for child in module.modules() if (config := getattr(child, "config", None)) is not None
    }
    return [
        (config, config._attn_implementation_internal)
        for config in configs.values()
        if isinstance(config, PreTrainedConfig)
    ]
