"""One call of an attention: its queries, keys, values, mask and weights, which listeners can see and edit."""

# B batch, H query head, G key/value head, T query token, S key token, d head width

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

_MASKED = -5_000.0  # families mask with -10,000, a precision's lowest number or -inf; biases are far above these


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Where an attention call happens: stack "encoder" or "decoder", kind "self" or "cross", layer from 0."""

    stack: str
    kind: str
    layer: int


UNKNOWN = Site(stack="?", kind="?", layer=-1)


class AtSite:
    """Base class of objects with a `site`, whose stack, kind and layer become attributes."""

    __slots__ = ()
    site: Site

    @property
    def stack(self) -> str:
        return self.site.stack

    @property
    def kind(self) -> str:
        return self.site.kind

    @property
    def layer(self) -> int:
        return self.site.layer


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OtherKeys:
    """Keys and values that only some queries use: Longformer's global tokens."""

    rows: Tensor  # (B, T), true for these queries
    key: Tensor  # (B, H, S, d)
    value: Tensor

    def where(self, theirs: Tensor, rest: Tensor) -> Tensor:
        """Select `theirs` for these queries and `rest` for the others; both are (B, H, T, ...)."""
        return torch.where(self.rows[:, None, :, None], theirs, rest)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionCall(AtSite):
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

    With `tap(query_block=...)` a long text makes several calls of each attention: T are then the queries from number
    `start` on, of `num_queries` in all.

    To edit a call, return `call.edited(...)` from `on_attention`.
    """

    site: Site = UNKNOWN
    module: nn.Module
    num_key_value_heads: int
    query: Tensor | None
    key: Tensor | None
    value: Tensor
    mask: Tensor | None
    scaling: float
    dropout: float
    position_bias: Tensor | None = None
    softcap: float | None = None
    weights: Tensor
    replaced_context: Tensor | None = None
    others: OtherKeys | None = None
    sinks: Tensor | None = None
    start: int = 0
    num_queries: int = 0
    whole_masks: tuple[Any, Any] | None = None

    @property
    def masks(self) -> tuple[Any, Any]:
        """The whole text's mask and position bias: calls of one pass with the same objects have the same mask."""
        return (self.mask, self.position_bias) if self.whole_masks is None else self.whole_masks

    @property
    def is_last(self) -> bool:
        """Whether the call holds the attention's last query."""
        return self.start + self.weights.shape[2] >= self.num_queries

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
        assert call.mask is not None, "scores that are not a product are in the mask"
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
