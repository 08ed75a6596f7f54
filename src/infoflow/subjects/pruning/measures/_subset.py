"""Gates that sum to exactly k: a differentiable choice of k heads."""

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError

FIRST_TEMPERATURE, LAST_TEMPERATURE, COOLING_STEPS = 1000.0, 1e-8, 25_000


def subset_gates(
    logits: Float[Tensor, " head"], k: int, temperature: float, generator: torch.Generator | None = None
) -> Float[Tensor, " head"]:
    r"""k draws without replacement, relaxed: gates in [0, 1] that sum to k, differentiable in the logits.

    $$ r = w + \mathrm{Gumbel}, \qquad p_1 = \mathrm{softmax}(r / t), \qquad
       r \leftarrow r + \ln\max(1 - p_{j-1}, \text{tiny}), \quad p_j = \mathrm{softmax}(r / t), \qquad
       g = \sum_{j=1}^{k} p_j $$

    Computed in float64. Without a generator there is no noise: the released code draws noise in evaluation too, so that
    a model is scored with different heads each time.

    Args:
        logits: $w$, one per head.
        k: Heads to keep, 0..H.
        temperature: $t$; as it falls to 0 the gates become those of `subset_mask`.
        generator: Source of the Gumbel noise.

    Raises:
        UserError: k is negative or larger than the number of heads, or the temperature is not positive.

    Source: [@li2021subset].

    >>> subset_gates(torch.tensor([0.0, 2.0, 1.0]), k=2, temperature=0.01).round().tolist()
    [0.0, 1.0, 1.0]
    """
    _check(logits, k)
    if not temperature > 0:
        raise UserError(f"temperature must be positive. Got {temperature}.")
    r = logits.double()
    if generator is not None:
        uniform = torch.rand(r.shape, generator=generator, dtype=torch.float64, device=r.device)
        r = r - (-uniform.clamp(min=torch.finfo(torch.float64).tiny).log()).log()
    gates = torch.zeros_like(r)
    tiny = torch.finfo(torch.float64).tiny
    p = torch.zeros_like(r)
    for _ in range(k):
        r = r + (1 - p).clamp(min=tiny).log()
        p = torch.softmax(r / temperature, dim=0)
        gates = gates + p
    return gates.to(logits.dtype)


def subset_mask(logits: Float[Tensor, " head"], k: int) -> Float[Tensor, " head"]:
    """1 for the k largest logits, else 0; ties go by index, so that there are always k.

    Raises:
        UserError: k is negative or larger than the number of heads.
    """
    _check(logits, k)
    mask = torch.zeros_like(logits)
    mask[torch.argsort(logits.detach(), descending=True, stable=True)[:k]] = 1
    return mask


def straight_through_gates(logits: Float[Tensor, " head"], k: int) -> Float[Tensor, " head"]:
    """`subset_mask` forward, the identity backward."""
    return subset_mask(logits, k) + (logits - logits.detach())


def cooling(step: int, steps: int = COOLING_STEPS) -> float:
    """Temperature of a training step: geometric from 1000 to 1e-8 over `steps`, then constant."""
    share = min(1.0, max(0, step) / max(1, steps))
    return FIRST_TEMPERATURE * (LAST_TEMPERATURE / FIRST_TEMPERATURE) ** share


def _check(logits: Tensor, k: int) -> None:
    if not 0 <= k <= len(logits):
        raise UserError(f"k must lie between 0 and the number of heads, {len(logits)}. Got {k}.")
