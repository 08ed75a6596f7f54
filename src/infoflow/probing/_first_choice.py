"""Whether the right answer has the highest score, with ties."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def first_choice(scores: Float[Tensor, "*rest choice"], gold: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """1/m if the right choice is one of m with the highest score, else 0: the hit rate of a random pick among them.

    Leading dimensions are broadcast. Scores tie if they are equal in their own precision.

    >>> first_choice(torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.0, 0.5]]), torch.tensor([1, 0]))
    tensor([1.0000, 0.5000])
    """
    best = scores == scores.amax(-1, keepdim=True)
    rest = torch.broadcast_shapes(scores.shape[:-1], gold.shape)
    right = best.expand(*rest, -1).gather(-1, gold.expand(rest).unsqueeze(-1)).squeeze(-1)
    return right / best.sum(-1)
