"""What every method of relevance gives for one sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Place = tuple[str, str, int]
"""Stack, kind and layer of an attention."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SentenceRelevance:
    """What a method finds for each seed of one sentence."""

    heads: Mapping[Place, Float[Tensor, "seed head"]]
    """Relevance of each head of an attention, summed over tokens and dimensions."""
    tokens: Mapping[str, Float[Tensor, "seed token"]]
    """By stack: relevance of each token it reads."""
    absorbed: float = 0.0
    """Share of the relevance that biases took away before rescaling (`bias="absorb"`)."""


def joined(parts: Sequence[SentenceRelevance]) -> SentenceRelevance:
    """The seeds of several results in one."""
    return SentenceRelevance(
        heads={key: torch.cat([part.heads[key] for part in parts]) for key in parts[0].heads},
        tokens={stack: torch.cat([part.tokens[stack] for part in parts]) for stack in parts[0].tokens},
        absorbed=sum(part.absorbed for part in parts) / len(parts),
    )
