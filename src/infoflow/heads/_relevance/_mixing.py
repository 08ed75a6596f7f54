"""How attentions mix tokens, followed from each prediction down to the embeddings."""

# N seed, T token, S memory token, H head

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.models import Model

from ._result import Place, SentenceRelevance


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Mixing:
    """What an attention with its residual makes each token of; rows of `own` and `across` together sum to 1."""

    own: Float[Tensor, "token token"]
    """Shares of the stack's own tokens, as they enter the attention."""
    across: Float[Tensor, "token memory"] | None
    """Shares of the encoder's tokens, in cross-attention."""
    heads: Float[Tensor, "token head"]
    """What each head brings to each token."""


def follow(model: Model, mixings: Mapping[Place, Mixing], positions: Int[Tensor, " seed"]) -> SentenceRelevance:
    """Product of the mixings from the predictions' states downwards.

    A head's relevance is what it brings to each token, weighted by how much of that token reaches the prediction.
    """
    stacks = [stack.name for stack in model.anatomy.stacks]
    reaching: dict[str, Tensor] = {}
    heads: dict[Place, Tensor] = {}
    top = stacks[-1]
    for (stack, kind, layer), mixing in _downwards(mixings, stacks):
        if stack not in reaching:
            start = mixing.own.new_zeros(len(positions), len(mixing.own))
            if stack == top:
                start[torch.arange(len(positions)), positions] = 1
            reaching[stack] = start
        at_NT = reaching[stack]
        heads[stack, kind, layer] = at_NT @ mixing.heads
        reaching[stack] = at_NT @ mixing.own
        if mixing.across is not None:
            before = reaching.get(stacks[0])
            arriving = at_NT @ mixing.across
            reaching[stacks[0]] = arriving if before is None else before + arriving
    return SentenceRelevance(heads=heads, tokens={stack: reaching[stack] for stack in stacks})


def _downwards(mixings: Mapping[Place, Mixing], stacks: list[str]) -> list[tuple[Place, Mixing]]:
    """From the top: a decoder before the encoder; in a layer cross-attention before self-attention."""
    return sorted(mixings.items(), key=lambda item: (-stacks.index(item[0][0]), -item[0][2], item[0][1] == "self"))
