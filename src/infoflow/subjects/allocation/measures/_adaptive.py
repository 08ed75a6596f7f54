"""Adaptive number of panels for the loss change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from infoflow.foundation import UserError

from ._allocation import LossFunction, Weights, checked, gradient_at, on_chord
from ._refinement import refined


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AdaptiveAllocation:
    """Allocations of one chord, with the number of panels that made every loss's residual small enough."""

    allocations: dict[str, Weights]  # by the name of the loss
    splits: int
    residuals: dict[str, float]  # loss change minus the sum of the allocation

    def __str__(self) -> str:
        worst = max(abs(residual) for residual in self.residuals.values())
        return f"{self.splits} panels, residual {worst:.2g}"


def adaptive_allocation(
    losses: Mapping[str, LossFunction],
    start: Mapping[str, Any],
    end: Mapping[str, Any],
    tolerance: float = 1e-3,
    splits: int = 2,
    max_splits: int = 32,
) -> AdaptiveAllocation:
    r"""Simpson's rule on `splits` panels, doubled while |loss change − sum of A| of any loss exceeds `tolerance`.

    Every gradient is reused, and only four copies of the weights are held per loss.

    Args:
        losses: Loss functions by name, usually the training and the held-out set.
        start: Weights before.
        end: Weights after.
        tolerance: Largest residual, in the unit of the loss.
        splits: Initial panels.
        max_splits: Panels at which to stop; the residuals show whether that was enough.

    Raises:
        UserError: As in `loss_change_allocation`; or there is no loss, or panel numbers are invalid.

    Source: [@lan2019lca], the rule in their code (2 panels, up to 32, 0.001 on both sets).
    """
    if not losses or not 1 <= splits <= max_splits:
        raise UserError(
            f"adaptive_allocation needs a loss and 1 <= splits <= max_splits. Got {len(losses)} losses, {splits} and "
            f"{max_splits}."
        )
    first, last = checked(start, end)
    steps = {name: last[name] - first[name] for name in first}
    with torch.no_grad():
        changes = {name: float(loss(dict(last))) - float(loss(dict(first))) for name, loss in losses.items()}

    def mean_at(nodes: list[float]) -> dict[tuple[str, str], torch.Tensor]:
        total = {(loss, name): torch.zeros_like(tensor) for loss in losses for name, tensor in first.items()}
        for node in nodes:
            there = on_chord(first, last, steps, node)
            for loss, function in losses.items():
                for name, value in gradient_at(function, there).items():
                    total[loss, name].add_(value, alpha=1 / len(nodes))
        return total

    def residuals_of(means: Mapping[tuple[str, str], torch.Tensor]) -> dict[str, float]:
        sums = {
            loss: sum(float((means[loss, name] * steps[name]).sum(dtype=torch.float64)) for name in steps)
            for loss in losses
        }
        return {loss: changes[loss] - sums[loss] for loss in losses}

    def is_close(means: Mapping[tuple[str, str], torch.Tensor]) -> bool:
        return all(abs(residual) <= tolerance for residual in residuals_of(means).values())

    means, panels = refined(mean_at([0.0, 1.0]), mean_at, is_close, splits, max_splits)
    allocations = {loss: {name: means[loss, name] * steps[name] for name in steps} for loss in losses}
    return AdaptiveAllocation(allocations=allocations, splits=panels, residuals=residuals_of(means))
