"""Quadrature rules along the chord between two sets of weights: nodes and weights."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

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

    Raises:
        UserError: There is no such rule, or `splits` is below 1.

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
