"""Attention rows that count, and their admissible keys."""

# B sentence, H head, Q query, K key

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.flow import Activations, AttentionKey
from infoflow.foundation import UserError, as_tensor, as_written

Array = Tensor | np.ndarray
Attention = Array | Sequence[Array]
"""(layer, batch, head, query, key), or the layers one by one, as Transformers' `outputs.attentions` has them."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionRows:
    """Which entries of attention matrices count. Weights are not renormalised after exclusion."""

    admissible: Bool[Tensor, "sentence query key"]
    """The query counts, and may attend to this key, which counts as well."""
    visible: Bool[Tensor, "sentence query key"]
    """The model lets the query attend to this key, whether it counts or not."""
    offset: Int[Tensor, "sentence query key"]
    """Key's position minus the query's; positions count real tokens, so padding does not shift them."""

    @classmethod
    def of_tokens(cls, valid: Bool[Tensor, "sentence token"]) -> "AttentionRows":
        """Self-attention among the valid tokens."""
        admissible = valid.unsqueeze(2) & valid.unsqueeze(1)
        return cls(admissible=admissible, visible=admissible, offset=_offsets(*_index_positions(valid)))

    @classmethod
    def of_activations(
        cls,
        activations: Activations,
        key: AttentionKey,
        queries: Bool[Tensor, "sentence query"] | None = None,
        keys: Bool[Tensor, "sentence key"] | None = None,
        visible: Bool[Tensor, "sentence query key"] | None = None,
    ) -> "AttentionRows":
        """One stack's attention of one kind.

        `queries` and `keys` are masks of tokens that count; default: all but padding and special tokens. `visible` is
        the mask of the layer in question, one of `Activations.visible_keys`; default: the first layer's.
        """
        from_stream, to_stream = activations.streams[key[0]], activations.keys_stream(key)
        queries = from_stream.valid if queries is None else queries
        keys = to_stream.valid if keys is None else keys
        visible = activations.visible_keys(key)[0] if visible is None else visible
        return cls(
            admissible=queries.unsqueeze(2) & keys.unsqueeze(1) & visible,
            visible=visible,
            offset=_offsets(from_stream.position, to_stream.position),
        )

    @property
    def queries(self) -> Bool[Tensor, "sentence query"]:
        """Queries with at least one key."""
        return self.admissible.any(2)

    @property
    def uniform(self) -> Float[Tensor, "sentence head=1 query key"]:
        """The head on which every control is computed: equal weights on all keys that a query may attend to.

        As for the model's own heads, weights on keys that do not count are dropped, not redistributed.
        """
        return uniform_attention(self.visible)


def _index_positions(valid: Bool[Tensor, "sentence token"]) -> tuple[Tensor, Tensor]:
    position = torch.arange(valid.shape[1], device=valid.device).expand(valid.shape)
    return position, position


def _offsets(
    queries: Int[Tensor, "sentence query"], keys: Int[Tensor, "sentence key"]
) -> Int[Tensor, "sentence query key"]:
    return keys.unsqueeze(1) - queries.unsqueeze(2)


def uniform_attention(visible: Bool[Tensor, "sentence query key"]) -> Float[Tensor, "sentence head=1 query key"]:
    """Weights of a head that attends equally to all visible keys, in float32 like a model's softmax."""
    return (visible / visible.sum(2, keepdim=True).clamp(min=1)).unsqueeze(1)


def largest(
    weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
) -> Float[Tensor, "sentence head query"]:
    """Each row's largest weight over its keys; rows without keys give −1."""
    # Filled, not multiplied: rows of padding may hold NaN.
    return weights.masked_fill(~rows.admissible.unsqueeze(1), -1).amax(3)


def maxima(
    weights: Float[Tensor, "sentence head query key"], admissible: Bool[Tensor, "sentence #head query key"]
) -> Float[Tensor, "sentence head query key"]:
    """1/m on each of the m admissible keys that share the largest weight of their row, 0 on all others.

    Weights tie only if they are exactly equal; a difference in the last digit decides. A row without keys is 0
    everywhere.
    """
    kept = weights.masked_fill(~admissible, -1)
    best = (kept == kept.amax(3, keepdim=True)).logical_and_(admissible).to(weights.dtype)
    return best.div_(best.sum(3, keepdim=True).clamp_(min=1))


def sum_on(
    shares: Float[Tensor, "sentence head query key"], targets: Sequence[Bool[Tensor, "sentence query key"]]
) -> Float[Tensor, "sentence head target"]:
    """Sum of `maxima` over each set of targets, in float64."""
    chosen = torch.stack(list(targets), dim=1).flatten(2).to(shares)
    return (shares.flatten(2) @ chosen.mT).double()


def sum_queries(scores: Float[Tensor, "sentence head query"], rows: AttentionRows) -> Float[Tensor, "sentence head"]:
    """Sum over the queries that count, in float64."""
    return scores.masked_fill(~rows.queries.unsqueeze(1), 0).double().sum(2)


def check_attention(
    attention: Attention, valid: Array | None
) -> tuple[Float[Tensor, "layer sentence head token token"], Bool[Tensor, "sentence token"]]:
    """Attention and validity (None: all valid) as tensors of matching shape on the CPU.

    Raises:
        UserError: A shape is wrong.
    """
    weights = _stacked(attention) if isinstance(attention, Sequence) else as_tensor(attention)
    if weights.ndim != 5 or weights.shape[3] != weights.shape[4] or 0 in (weights.shape[0], *weights.shape[2:]):
        raise UserError(
            "attention must have shape (layer, batch, head, query, key) with as many queries as keys. "
            f"Got {as_written(list(weights.shape))}. Give all layers: outputs.attentions."
        )
    mask = weights.new_ones(weights.shape[1], weights.shape[3]) if valid is None else as_tensor(valid)
    if mask.shape != (weights.shape[1], weights.shape[3]):
        raise UserError(
            f"valid must have shape (batch, token), {weights.shape[1]} by {weights.shape[3]}, False at padding and "
            f"excluded tokens. Got {as_written(list(mask.shape))}."
        )
    if weights.dtype not in (torch.float32, torch.float64):
        weights = weights.float()
    return weights, mask.bool()


def _stacked(layers: Sequence[Array]) -> Float[Tensor, "layer *rest"]:
    if not all(isinstance(layer, Array) and layer.shape == layers[0].shape for layer in layers) or not layers:
        raise UserError(
            "attention must hold one array of shape (batch, head, query, key) for each layer, all alike. "
            f"Got {[tuple(getattr(layer, 'shape', ())) for layer in layers]}. Transformers needs "
            'attn_implementation="eager" to return weights.'
        )
    return torch.stack([as_tensor(layer) for layer in layers])
