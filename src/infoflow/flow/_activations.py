"""The activations of a model on one batch, computed once and shared by all measures."""

# B sentence, T token (padded), D width, H head, d head width, Q query, K key

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from infoflow.models import Model, keys_stack

Need = Literal["hidden", "attention", "heads"]
"""What a measure needs from a pass: states, attention weights, or the outputs of heads."""
Regime = Literal["clean", "training"]
"""Sentences as they are, or corrupted as in the model's own training."""
AttentionKey = tuple[str, str]  # (stack, kind): ("encoder", "self"), ("decoder", "cross"), ...
"""(stack, kind): ("encoder", "self"), ("decoder", "cross")."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stream:
    """The tokens that one stack reads, as the model sees them (after corruption in the training regime)."""

    input_ids: Int[Tensor, "sentence token"]
    real: Bool[Tensor, "sentence token"]
    """False at padding."""
    valid: Bool[Tensor, "sentence token"]
    """False at padding and special tokens; the default mask of measures."""
    labels: Int[Tensor, "sentence token"]
    """The token to predict, or −100 where nothing is predicted.

    It is the next token (causal LM, decoders) or the original one (masked LM in the training regime).
    """
    position: Int[Tensor, "sentence token"]
    """0 for a sentence's first real token, on either padding side; −1 at padding."""
    words: Int[Tensor, "sentence token"]
    """Index of the word a token belongs to; −1 for special tokens and padding."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, weakref_slot=True)
class Activations:
    """One batch. Stacks are "encoder" and "decoder"; states are numbered 0..L, blocks and heads from 0."""

    model: Model
    regime: Regime
    sentence_ids: np.ndarray
    """(B,) `Corpus.content_ids`: stable, and independent of the order of the corpus's lines."""
    blocks: Int[Tensor, " sentence"]
    """Bootstrap block of each sentence, 0..63: accumulate sums per block (see `foundation.block_of`)."""
    streams: Mapping[str, Stream]
    hidden: Mapping[str, list[Tensor]] = field(default_factory=dict)
    """stack → L+1 tensors (B, T, D): embeddings, then each block's output."""
    attention: Mapping[AttentionKey, list[Tensor]] = field(default_factory=dict)
    """(stack, kind) → L tensors (B, H, Q, K), rows sum to 1; they include pad queries and keys: use `streams[...]`."""
    visible: Mapping[AttentionKey, list[Tensor]] = field(default_factory=dict)
    """(stack, kind) → L masks (B, Q, K): the keys visible to each query; see `visible_keys`."""
    heads: Mapping[AttentionKey, list[Tensor]] = field(default_factory=dict)
    """(stack, kind) → L tensors (B, T, H, d): the input of the output projection."""

    def keys_stream(self, key: AttentionKey) -> Stream:
        """The attended tokens: the encoder's for cross-attention, else the stack's own."""
        return self.streams[keys_stack(*key)]

    def visible_keys(self, key: AttentionKey) -> list[Bool[Tensor, "sentence query key"]]:
        """The keys visible to each query in each layer, under the model's own mask and without padding.

        Without `visible`: all real tokens, except later ones in a causal stack's self-attention.
        """
        stack, kind = key
        queries, keys = self.streams[stack], self.keys_stream(key)
        real = keys.real.unsqueeze(1).expand(-1, queries.real.shape[1], -1)
        if key in self.visible:
            masks = {id(mask): mask & real for mask in self.visible[key]}
            return [masks[id(mask)] for mask in self.visible[key]]
        if kind == "self" and self.model.anatomy.stack(stack).causal:
            real = real & (keys.position.unsqueeze(1) <= queries.position.unsqueeze(2))
        return [real] * max(1, len(self.attention.get(key, ())))
