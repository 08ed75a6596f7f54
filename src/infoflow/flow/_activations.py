"""What one batch shows of a model: computed once, shared by all measures."""

# B sentence, T token (padded), D width, H head, d head width, Q query, K key

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from infoflow.models import Model, keys_stack

Need = Literal["hidden", "attention", "heads"]
"""What a measure asks of a pass: states, attention weights, or the outputs of heads."""
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
    """False at padding and special tokens: what measures look at by default."""
    labels: Int[Tensor, "sentence token"]
    """The token to predict there: the next one (causal LM, decoders), the original one (masked LM in the training
    regime); −100 where nothing is predicted."""
    position: Int[Tensor, "sentence token"]
    """0 for a sentence's first real token, whatever the padding side; −1 at padding."""
    words: Int[Tensor, "sentence token"]
    """Index of the word a token belongs to; −1 for special tokens and padding."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, weakref_slot=True)
class Activations:
    """One batch. Stacks are "encoder" and "decoder"; states are numbered 0..L, blocks and heads from 0."""

    model: Model
    regime: Regime
    sentence_ids: np.ndarray
    """(B,) `Corpus.content_ids`: stable, and the same in whatever order the corpus's lines stand."""
    blocks: Int[Tensor, " sentence"]
    """Bootstrap block of each sentence, 0..63: accumulate sums per block (see `foundation.block_of`)."""
    streams: Mapping[str, Stream]
    hidden: Mapping[str, list[Tensor]] = field(default_factory=dict)
    """stack → L+1 tensors (B, T, D): embeddings, then each block's output."""
    attention: Mapping[AttentionKey, list[Tensor]] = field(default_factory=dict)
    """(stack, kind) → L tensors (B, H, Q, K), rows sum to 1; pad queries and keys are in them: use `streams[...]`."""
    heads: Mapping[AttentionKey, list[Tensor]] = field(default_factory=dict)
    """(stack, kind) → L tensors (B, T, H, d): the input of the output projection."""

    def keys_stream(self, key: AttentionKey) -> Stream:
        """The tokens attended to: the encoder's for cross-attention, else the stack's own."""
        return self.streams[keys_stack(*key)]
