"""Piecewise linear fits of a curve over training: its phases, shown as bands and not a finding by themselves."""

# N step, S segments

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from infoflow.foundation import UserError
from infoflow.heads import checked_curve

from ._phase import LEAST_POINTS

_MOST = 4  # phases
_LEAST = 2  # points per phase


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangePoints:
    """The best piecewise linear fit."""

    steps: tuple[float, ...]  # the first update of each phase except the first
    cost: float  # sum of squared residuals in standard errors


def change_points(
    steps: ArrayLike, values: ArrayLike, sigma: ArrayLike, most: int = _MOST, penalty: float | None = None
) -> ChangePoints:
    r"""A piecewise linear fit over \(x = \log_2 t\), with the number of lines chosen by BIC.

    $$ \min_{S \le 4} \; \min_{cuts} \sum_{s \le S} \sum_{i \in s} \Big(\frac{y_i - a_s - b_s x_i}{σ_i}\Big)^2
       + 3 S \ln N $$

    (a line and a cut for each), over all cuts that leave each phase two points: an exact search, in real x. Lines are
    fitted without weights, as in common change-point packages; residuals are in standard errors.

    Args:
        steps: Ascending; step 0 is left out.
        values: At each step.
        sigma: Standard error of each value.
        most: Maximum number of phases, 1 to 4.
        penalty: Instead of 3 ln N for each phase.

    Raises:
        UserError: There are fewer than eight steps after step 0, or errors are not positive.
    """
    times, curve = checked_curve(steps, values)
    errors = np.broadcast_to(np.asarray(sigma, dtype=np.float64), times.shape)
    if (times > 0).sum() < LEAST_POINTS or not (errors > 0).all() or not np.isfinite(curve).all():
        raise UserError(
            f"Change points need finite values at {LEAST_POINTS} steps or more after step 0, with errors above 0. Got "
            f"{int((times > 0).sum())} steps, errors from {errors.min():g}. Add checkpoints."
        )
    if not 1 <= most <= _MOST:
        raise UserError(f"most must lie in 1..{_MOST} phases. Got {most}.")
    later = times > 0
    t, costs = times[later], _line_costs(np.log2(times[later]), curve[later], errors[later])
    each = 3 * np.log(len(t)) if penalty is None else penalty
    every = [(total + each * number, total, cuts) for number, (total, cuts) in enumerate(_best(costs, most), 1)]
    _, total, cuts = min(every)
    return ChangePoints(steps=tuple(float(t[cut]) for cut in cuts), cost=total)


def _line_costs(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], sigma: Float[np.ndarray, " N"]
) -> Float[np.ndarray, "N end"]:
    """The cost of one line through points start..end-1; infinite for fewer than two."""
    costs = np.full((len(x), len(x) + 1), np.inf)
    for start in range(len(x)):
        for end in range(start + _LEAST, len(x) + 1):
            at, of = x[start:end] - x[start:end].mean(), y[start:end] - y[start:end].mean()
            slope = (at @ of) / (at @ at)
            costs[start, end] = (((of - slope * at) / sigma[start:end]) ** 2).sum()
    return costs


def _best(costs: Float[np.ndarray, "N end"], most: int) -> list[tuple[float, tuple[int, ...]]]:
    """The lowest cost of 1, 2, ... pieces, and their cuts, by dynamic programming."""
    num = len(costs)
    reached: dict[int, tuple[float, tuple[int, ...]]] = {
        end: (float(costs[0, end]), ()) for end in range(_LEAST, num + 1)
    }
    found = [reached[num]]
    for _ in range(1, most):
        reached = {
            end: min(
                (total + float(costs[cut, end]), (*cuts, cut)) for cut, (total, cuts) in reached.items() if cut < end
            )
            for end in range(_LEAST + min(reached), num + 1)
        }
        if num not in reached:
            break
        found.append(reached[num])
    return found
