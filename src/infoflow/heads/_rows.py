"""Attention rows that count, and the keys they may look at."""

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
    """Which entries of attention matrices count. Nothing is renormalised after exclusion."""

    admissible: Bool[Tensor, "sentence query key"]
    """The query counts, and may attend to this key."""
    offset: Int[Tensor, "sentence query key"]
    """Key's position less the query's; positions count real tokens, so padding does not shift them."""

    @classmethod
    def of_tokens(cls, valid: Bool[Tensor, "sentence token"]) -> "AttentionRows":
        """Self-attention among the valid tokens."""
        return cls(admissible=valid.unsqueeze(2) & valid.unsqueeze(1), offset=_offsets(*_index_positions(valid)))

    @classmethod
    def of_activations(
        cls,
        activations: Activations,
        key: AttentionKey,
        queries: Bool[Tensor, "sentence query"] | None = None,
        keys: Bool[Tensor, "sentence key"] | None = None,
    ) -> "AttentionRows":
        """One stack's attention of one kind; in causal self-attention later keys are inadmissible.

        `queries` and `keys` say which tokens count as such; by default all but padding and special tokens.
        """
        stack, kind = key
        from_stream, to_stream = activations.streams[stack], activations.keys_stream(key)
        queries = from_stream.valid if queries is None else queries
        keys = to_stream.valid if keys is None else keys
        admissible = queries.unsqueeze(2) & keys.unsqueeze(1)
        offset = _offsets(from_stream.position, to_stream.position)
        if kind == "self" and activations.model.anatomy.stack(stack).causal:
            admissible = admissible & (offset <= 0)
        return cls(admissible=admissible, offset=offset)

    @property
    def queries(self) -> Bool[Tensor, "sentence query"]:
        """Queries with at least one key."""
        return self.admissible.any(2)

    @property
    def num_keys(self) -> Int[Tensor, "sentence query"]:
        return self.admissible.sum(2)


def _index_positions(valid: Bool[Tensor, "sentence token"]) -> tuple[Tensor, Tensor]:
    position = torch.arange(valid.shape[1], device=valid.device).expand(valid.shape)
    return position, position


def _offsets(
    queries: Int[Tensor, "sentence query"], keys: Int[Tensor, "sentence key"]
) -> Int[Tensor, "sentence query key"]:
    return keys.unsqueeze(1) - queries.unsqueeze(2)


def largest(
    weights: Float[Tensor, "sentence head query key"], rows: AttentionRows
) -> tuple[Float[Tensor, "sentence head query"], Int[Tensor, "sentence head query"]]:
    """Each row's largest weight over its keys, and that key (the first of equals); rows without keys give −1."""
    # Filled, not multiplied: rows of padding may hold NaN.
    best = weights.masked_fill(~rows.admissible.unsqueeze(1), -1).max(dim=3)
    return best.values, best.indices


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
