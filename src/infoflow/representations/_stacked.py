"""Many small probes trained at once: one step of all layers and seeds is one batched product."""

# P probe, B target, D input, K class

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import stream

_PLATEAU = 1e-4  # relative: the improvement threshold of torch's ReduceLROnPlateau


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """Adam with a learning rate that falls, separately for each probe, when its development loss stops falling."""

    rate: float = 1e-3
    factor: float = 0.5
    """Factor on the rate after every evaluation without a new best loss (ReduceLROnPlateau, patience 0)."""
    patience: int = 5
    """A probe stops after this many evaluations without an improvement of `least`."""
    least: float = 1e-3
    """Minimum improvement, in the unit of the loss."""
    epochs: int = 50
    """Maximum number of epochs; each ends with an evaluation."""


class StackedAdam:
    """Adam on parameters whose first axis is the probe, with a separate rate for each probe.

    `speeds` scale the rate of each parameter; default 1.

    Source: [@kingma2015]; the constants are those of `torch.optim.Adam`.
    """

    def __init__(
        self, parameters: Sequence[Tensor], rates: Float[Tensor, " probe"], speeds: Sequence[float] | None = None
    ) -> None:
        self.rates, self._steps = rates, 0
        self._speeds = [1.0] * len(parameters) if speeds is None else list(speeds)
        self._first = [torch.zeros_like(each) for each in parameters]
        self._second = [torch.zeros_like(each) for each in parameters]

    @torch.no_grad()
    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        self._steps += 1
        unbiased, spread = 1 - 0.9**self._steps, math.sqrt(1 - 0.999**self._steps)
        torch._foreach_lerp_(self._first, list(gradients), 0.1)
        torch._foreach_mul_(self._second, 0.999)
        torch._foreach_addcmul_(self._second, list(gradients), list(gradients), 0.001)
        divisors = torch._foreach_sqrt(self._second)
        torch._foreach_div_(divisors, spread)
        torch._foreach_add_(divisors, 1e-8)
        for value, first, divisor, speed in zip(parameters, self._first, divisors, self._speeds, strict=True):
            rates = (self.rates * speed / unbiased).view(-1, *[1] * (value.dim() - 1))
            value.addcdiv_(first * rates, divisor, value=-1)

    def keep(self, index: Int[Tensor, " kept"]) -> None:
        """Continue with these probes only."""
        self.rates = self.rates[index]
        self._first = [each[index] for each in self._first]
        self._second = [each[index] for each in self._second]


class Plateau:
    """When to lower a probe's rate and when to stop it, judged by its losses on the development data."""

    def __init__(self, probes: int, schedule: Schedule, device: torch.device) -> None:
        self._schedule = schedule
        self._lowest = torch.full((probes,), math.inf, device=device)
        self.best = torch.full((probes,), math.inf, device=device)
        self._since = torch.zeros(probes, dtype=torch.long, device=device)

    def see(self, losses: Float[Tensor, " probe"], adam: StackedAdam) -> tuple[Tensor, Tensor]:
        """Which probes improve their best loss by `least`, and which continue; lowers the rates of all others."""
        better = losses < self.best - self._schedule.least
        self.best = torch.where(better, losses, self.best)
        self._since = torch.where(better, 0, self._since + 1)
        falls = losses < self._lowest * (1 - _PLATEAU)
        self._lowest = torch.where(falls, losses, self._lowest)
        adam.rates = torch.where(falls, adam.rates, adam.rates * self._schedule.factor)
        return better, self._since < self._schedule.patience

    def keep(self, index: Int[Tensor, " kept"]) -> None:
        self._lowest, self.best, self._since = self._lowest[index], self.best[index], self._since[index]


Losses = Callable[[Sequence[Tensor], Int[Tensor, " probe"], Tensor], Tensor]
"""One loss per probe for this batch, from the parameters of the probes at these indices."""


def train_stacked(
    parameters: Sequence[Tensor],
    batches: Callable[[int], Iterator[Tensor]],
    loss: Losses,
    development: Callable[[Sequence[Tensor], Int[Tensor, " probe"]], Tensor],
    schedule: Schedule,
    speeds: Sequence[float] | None = None,
) -> list[Tensor]:
    """Train many probes; returns each probe's parameters at its best evaluation. Stopped probes take no more time.

    Args:
        parameters: Initial values, with the probe as first axis.
        batches: Batches of an epoch; a batch holds the examples of each seed, and all probes see every batch.
        loss: Loss to minimise; a probe's loss depends only on its own parameters.
        development: Loss to evaluate after each epoch; NaN counts as no improvement.
        schedule: The learning rate, when it is lowered, and when a probe stops.
        speeds: Factor on the learning rate of each parameter; default 1.
    """
    best = [each.detach().clone() for each in parameters]
    current = [each.detach().clone().requires_grad_() for each in parameters]
    probes = len(best[0])
    active = torch.arange(probes, device=best[0].device)
    adam = StackedAdam(current, torch.full((probes,), schedule.rate, device=best[0].device), speeds)
    plateau = Plateau(probes, schedule, best[0].device)
    for epoch in range(schedule.epochs):
        for batch in batches(epoch):
            with torch.enable_grad():
                gradients = torch.autograd.grad(loss(current, active, batch).sum(), current)
            adam.step(current, gradients)
        with torch.no_grad():
            better, going = plateau.see(development(current, active), adam)
            for kept, value in zip(best, current, strict=True):
                kept[active[better]] = value[better]
        if not bool(going.any()):
            break
        if not bool(going.all()):
            index = going.nonzero()[:, 0]
            current = [each.detach()[index].requires_grad_() for each in current]
            active = active[index]
            adam.keep(index)
            plateau.keep(index)
    return best


def mlp_parameters(key: str, seeds: Sequence[int], layers: int, sizes: Sequence[int]) -> list[Tensor]:
    r"""Weights (P, in, out) and biases (P, 1, out) of perceptrons of these sizes; P = seeds × layers, seed by seed.

    Uniform within $\pm 1/\sqrt{\text{in}}$, as in `torch.nn.Linear`. All layers of a seed start with equal weights, so
    that they differ only in their inputs.
    """
    generators = [stream(key, seed) for seed in seeds]
    return [
        uniform(generators, layers, 1 / math.sqrt(given), shape)
        for given, out in pairwise(sizes)
        for shape in ((given, out), (1, out))
    ]


def uniform(
    generators: Sequence[np.random.Generator], layers: int, bound: float, shape: tuple[int, ...]
) -> Float[Tensor, "probe *shape"]:
    """Numbers within ± `bound`, drawn once for each seed and equal for all of its layers."""
    drawn = [torch.from_numpy(each.uniform(-bound, bound, shape)).float() for each in generators]
    return torch.stack(drawn).repeat_interleave(layers, dim=0)


def mlp_logits(parameters: Sequence[Tensor], x_PBD: Float[Tensor, "probe target width"]) -> Tensor:
    """Logits (P, B, K) of perceptrons with ReLU between their layers."""
    hidden = x_PBD
    for index in range(0, len(parameters), 2):
        if index:
            hidden = hidden.relu()
        hidden = torch.baddbmm(parameters[index + 1], hidden, parameters[index])
    return hidden


def first_choice(scores: Float[Tensor, "*rest choice"], gold: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """1/m if the right choice is one of m with the highest score, else 0: the hit rate of a random choice among these.

    Leading dimensions are broadcast. Scores tie only if they are exactly equal.

    >>> first_choice(torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.0, 0.5]]), torch.tensor([1, 0]))
    tensor([1.0000, 0.5000])
    """
    best = scores == scores.amax(-1, keepdim=True)
    rest = torch.broadcast_shapes(scores.shape[:-1], gold.shape)
    right = best.expand(*rest, -1).gather(-1, gold.expand(rest).unsqueeze(-1)).squeeze(-1)
    return right / best.sum(-1)
