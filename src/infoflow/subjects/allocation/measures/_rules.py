"""Quadrature along the chord between two sets of weights, and the adaptive number of its panels."""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor

from infoflow.foundation import UserError

Rule = Literal["first-order", "trapezoid", "midpoint", "simpson", "gauss-legendre"]
"""How the gradient is integrated along one update."""
RULES: tuple[Rule, ...] = get_args(Rule)
"""All rules of integration, from the coarsest."""

_GAUSS = math.sqrt(3) / 6

# Nodes and weights on one panel [0, 1]. "Runge–Kutta 4" in the published code is Simpson's rule: the integrand depends
# only on the position, not on an earlier slope.
_PANELS: dict[Rule, tuple[tuple[float, float], ...]] = {
    "first-order": ((0.0, 1.0),),
    "trapezoid": ((0.0, 1 / 2), (1.0, 1 / 2)),
    "midpoint": ((0.5, 1.0),),
    "simpson": ((0.0, 1 / 6), (0.5, 4 / 6), (1.0, 1 / 6)),
    "gauss-legendre": ((0.5 - _GAUSS, 1 / 2), (0.5 + _GAUSS, 1 / 2)),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Quadrature:
    r"""$\int_0^1 g(s)\,ds \approx \sum_k w_k\,g(a_k)$, with nodes a in ascending order."""

    nodes: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def first(self) -> float:
        """Weight of the start of the chord; 0 if the rule does not use it."""
        return self.weights[0] if self.nodes[0] == 0.0 else 0.0

    @property
    def last(self) -> float:
        """Weight of the end of the chord."""
        return self.weights[-1] if self.nodes[-1] == 1.0 else 0.0

    @property
    def inner(self) -> tuple[tuple[float, float], ...]:
        """Nodes between the ends, with their weights."""
        return tuple((a, w) for a, w in zip(self.nodes, self.weights, strict=True) if 0.0 < a < 1.0)


def quadrature(rule: Rule | str, splits: int = 1) -> Quadrature:
    """The rule on `splits` equal panels; panels share their end points.

    | rule             | exact for gradients that are  | new gradients per panel, end points shared |
    |------------------|-------------------------------|--------------------------------------------|
    | `first-order`    | constant along the chord      | 1 |
    | `trapezoid`      | linear                        | 1 |
    | `midpoint`       | linear                        | 1 |
    | `simpson`        | cubic                         | 2 |
    | `gauss-legendre` | cubic                         | 2 |

    >>> quadrature("simpson", 2).nodes
    (0.0, 0.25, 0.5, 0.75, 1.0)
    """
    if rule not in _PANELS:
        raise UserError(f"rule must be one of {', '.join(RULES)}. Got {rule}.")
    if splits < 1:
        raise UserError(f"splits must be at least 1. Got {splits}.")
    weights: dict[float, float] = {}
    for panel in range(splits):
        for node, weight in _PANELS[rule]:
            place = (panel + node) / splits
            weights[place] = weights.get(place, 0.0) + weight / splits
    return Quadrature(nodes=tuple(weights), weights=tuple(weights.values()))


# Simpson's rule with adaptive panels, reusing every gradient.


K = TypeVar("K", bound=Hashable)


def refined(
    ends: Mapping[K, Tensor],
    mean_at: Callable[[list[float]], Mapping[K, Tensor]],
    is_close: Callable[[Mapping[K, Tensor]], bool],
    splits: int,
    max_splits: int,
) -> tuple[dict[K, Tensor], int]:
    r"""Mean gradients on the chord, and the number of panels used.

    Simpson's sum on n panels is $(4 T_{2n} - T_n) / 3$ of the trapezoid sums T, and $T_{2n}$ needs only the midpoints
    missing from $T_n$.

    Args:
        ends: Means of the gradients at the chord's two ends.
        mean_at: Mean of the gradients at positions between 0 and 1.
        is_close: Whether such means explain the change of the losses.
        splits: Initial panels; they double until the means are close, or doubling would exceed `max_splits`.
    """
    panels, coarse = splits, ends
    if panels > 1:
        coarse = _blend(ends, mean_at([index / panels for index in range(1, panels)]), 1 / panels)
    while True:
        fine = _blend(coarse, mean_at([(index + 0.5) / panels for index in range(panels)]), 1 / 2)
        found = {key: (4 * fine[key] - coarse[key]) / 3 for key in fine}
        if is_close(found) or 2 * panels > max_splits:
            return found, panels
        coarse, panels = fine, 2 * panels


def _blend(ends: Mapping[K, Tensor], inner: Mapping[K, Tensor], weight: float) -> dict[K, Tensor]:
    """weight · ends + (1 − weight) · inner."""
    return {key: torch.lerp(inner[key], ends[key], weight) for key in ends}


class Panels:
    """Sum and maximum over chords of the number of panels that their residuals needed."""

    def __init__(self) -> None:
        self._chords, self._sum, self.largest = 0, 0, 0

    def add(self, panels: int) -> None:
        """Count one chord."""
        self._chords += 1
        self._sum += panels
        self.largest = max(self.largest, panels)

    @property
    def mean(self) -> float:
        return self._sum / self._chords if self._chords else np.nan

    def state(self) -> dict[str, Tensor]:
        return {"counts": torch.tensor([self._chords, self._sum, self.largest])}

    def load(self, state: dict[str, Tensor]) -> None:
        self._chords, self._sum, self.largest = state["counts"].tolist()


# Adaptive number of panels for the loss change.


Weights = dict[str, Tensor]
LossFunction = Callable[[Weights], Tensor]


def loss_change_allocation(
    loss_fn: LossFunction,
    start: Mapping[str, Any],
    end: Mapping[str, Any],
    rule: Rule | str = "simpson",
    splits: int = 1,
) -> Weights:
    r"""How much each parameter changed the loss on the straight line from `start` to `end`.

    $$ A_i = \Delta_i \int_0^1 \partial_i L(\theta + s\Delta)\,ds \approx \Delta_i \sum_k w_k\,g_i(\theta + a_k\Delta),
       \qquad \sum_i A_i = L(\theta + \Delta) - L(\theta) $$

    | symbol             | here                                     | space                                 |
    |--------------------|------------------------------------------|---------------------------------------|
    | $\theta$, $\Delta$ | `start`, `end` − `start`                 | real, any shapes                      |
    | $L$, $g$           | `loss_fn`, its gradient                  | nats (the loss's own unit)            |
    | $a_k$, $w_k$       | nodes and weights of `rule`              | [0, 1]                                |
    | $A$                | returned, shaped like the parameters     | nats; negative: the parameter helped  |

    The sum is exact for gradients that the rule integrates exactly (see `quadrature`), otherwise up to the quadrature
    error. A parameter that does not move, or has no gradient along the chord, gets exactly 0. The path from `end` to
    `start` gives −A. A weight used in two places is one parameter; under two names it is split between its uses.

    Args:
        loss_fn: The loss as a differentiable scalar of a dict like `start`; without dropout or fresh noise, otherwise
            the sum is not the loss change.
        start: Weights before, by name: float32 or float64 tensors or arrays.
        end: Weights after, with the same names and shapes.
        rule: Quadrature rule.
        splits: Number of equal panels into which the chord is cut.

    Raises:
        UserError: Names, shapes or precision do not match, or the loss is not a scalar.

    Source: [@lan2019lca]; their RK4 is Simpson's rule here.

    >>> square = lambda w: (w["w"] ** 2).sum()
    >>> loss_change_allocation(square, {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([0.0, 2.0])})
    {'w': tensor([-1.,  0.])}
    """
    first, last = checked(start, end)
    steps = {name: last[name] - first[name] for name in first}
    rule_on_chord = quadrature(rule, splits)
    total = {name: torch.zeros_like(tensor) for name, tensor in first.items()}
    for node, weight in zip(rule_on_chord.nodes, rule_on_chord.weights, strict=True):
        gradient = gradient_at(loss_fn, on_chord(first, last, steps, node))
        for name, value in gradient.items():
            total[name].add_(value, alpha=weight)
    return {name: total[name] * steps[name] for name in total}


def on_chord(first: Weights, last: Weights, steps: Weights, node: float) -> Weights:
    """The weights at `node`; the ends are the original tensors, not rounded sums."""
    if node in (0.0, 1.0):
        return first if node == 0.0 else last
    return {name: torch.add(first[name], steps[name], alpha=node) for name in first}


def gradient_at(loss_fn: LossFunction, weights: Weights) -> Weights:
    """The loss's gradient; exactly 0 for parameters that it does not depend on."""
    with torch.enable_grad():
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
        loss = loss_fn(dict(leaves))
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise UserError(f"loss_fn must return a tensor of one number. Got {shape}: return the mean loss.")
        if not loss.requires_grad:  # the loss depends on no parameter
            return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
        found = torch.autograd.grad(loss.reshape(()), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def checked(start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[Weights, Weights]:
    """Return both as detached tensors; raise a UserError if they do not match."""
    if differing := sorted(set(start) ^ set(end)):
        raise UserError(
            f"start and end must name the same parameters. Only one of them has {', '.join(differing[:3])}."
        )
    if not start:
        raise UserError("start and end must hold at least one parameter. Got empty dicts.")
    first, last = ({name: torch.as_tensor(t).detach() for name, t in weights.items()} for weights in (start, end))
    for name in first:
        if first[name].shape != last[name].shape:
            shapes = f"{tuple(first[name].shape)} and {tuple(last[name].shape)}"
            raise UserError(f"start and end must have the same shapes. {name} has {shapes}.")
        for tensor in (first[name], last[name]):
            if tensor.dtype not in (torch.float32, torch.float64):
                raise UserError(
                    f"Parameters must be float32 or float64. {name} is {str(tensor.dtype).removeprefix('torch.')}: "
                    "differences of half-precision weights underflow; give the float32 master weights, no buffers."
                )
    return first, last


def free_residuals(
    change_G: np.ndarray, first_G: np.ndarray | None, middle_G: np.ndarray | None, last_G: np.ndarray | None
) -> dict[Rule | None, np.ndarray]:
    r"""Residuals of simple rules on a chord, from the slopes $g \cdot \Delta$ at its start, middle and end."""
    found: dict[Rule | None, np.ndarray] = {}
    if first_G is not None:
        found["first-order"] = change_G - first_G
    if middle_G is not None:
        found["midpoint"] = change_G - middle_G
    if first_G is not None and last_G is not None:
        found["trapezoid"] = change_G - (first_G + last_G) / 2
        if middle_G is not None:
            found["simpson"] = change_G - (first_G + 4 * middle_G + last_G) / 6
    return found
