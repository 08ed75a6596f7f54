"""As many panels as the loss change asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from infoflow.foundation import UserError

from ._allocation import LossFunction, Weights, checked, gradient_at, on_chord


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

    Simpson's sum on n panels is $(4 T_{2n} - T_n) / 3$ of the trapezoid sums T, and $T_{2n}$ needs only the midpoints
    that $T_n$ lacks: every gradient is used again, and four copies of the weights are all that is held per loss.

    Args:
        losses: Loss functions by name, usually the training and the held-out set.
        start: Weights before.
        end: Weights after.
        tolerance: Largest residual, in the unit of the loss.
        splits: Panels to begin with.
        max_splits: Panels at which to stop; the residuals tell whether that was enough.

    Raises:
        UserError: As for `loss_change_allocation`; or no loss, or panels out of order.

    Source: [@lan2019lca], the rule of their code (2 panels, up to 32, 0.001 on both sets).
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

    def mean_at(loss: LossFunction, nodes: list[float]) -> Weights:
        total = {name: torch.zeros_like(tensor) for name, tensor in first.items()}
        for node in nodes:
            for name, value in gradient_at(loss, on_chord(first, last, steps, node)).items():
                total[name].add_(value, alpha=1 / len(nodes))
        return total

    panels = splits
    trapezoids = {
        name: _blend(mean_at(loss, [0.0, 1.0]), mean_at(loss, _inner(panels)), 1 / panels)
        if panels > 1
        else mean_at(loss, [0.0, 1.0])
        for name, loss in losses.items()
    }
    while True:
        halved = {
            name: _blend(trapezoids[name], mean_at(loss, _midpoints(panels)), 1 / 2) for name, loss in losses.items()
        }
        allocations = {name: _simpson(trapezoids[name], halved[name], steps) for name in losses}
        residuals = {
            name: changes[name] - sum(float(a.sum(dtype=torch.float64)) for a in allocations[name].values())
            for name in losses
        }
        if all(abs(residual) <= tolerance for residual in residuals.values()) or 2 * panels > max_splits:
            return AdaptiveAllocation(allocations=allocations, splits=panels, residuals=residuals)
        trapezoids, panels = halved, 2 * panels


def _inner(panels: int) -> list[float]:
    return [place / panels for place in range(1, panels)]


def _midpoints(panels: int) -> list[float]:
    return [(place + 0.5) / panels for place in range(panels)]


def _blend(ends: Weights, inner: Weights, weight: float) -> Weights:
    """weight · ends + (1 − weight) · inner."""
    return {name: torch.lerp(inner[name], ends[name], weight) for name in ends}


def _simpson(coarse: Weights, fine: Weights, steps: Weights) -> Weights:
    return {name: (4 * fine[name] - coarse[name]) / 3 * steps[name] for name in steps}
