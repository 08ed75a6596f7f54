"""How close a layer is to its final form."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from infoflow.foundation import UserError
from infoflow.heads import checked_curve, last_crossing

_SETTLED = 0.9
_LEAST_CHANGE = 0.05  # of 1 - s(0): below that, a layer starts at its end


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Convergence:
    """A similarity to the reference, from 0 at the start to 1, and its time of settling.

    NaN if it hardly had to move.
    """

    values: np.ndarray  # (step,)
    time: float  # update of the last upward crossing of the level
    before: float  # checkpoints around it: (before, after]
    after: float
    area: float  # mean over log2 t from the first update on: 1 if it settled at once


def normalised_convergence(steps: ArrayLike, similarity: ArrayLike, level: float = _SETTLED) -> Convergence:
    r"""Similarity to a reference as a share of the distance from the start.

    $$ c(t) = \frac{s(t) - s(0)}{1 - s(0)}, \qquad
       \mathrm{area} = \frac{1}{\log_2 N - \log_2 t_1} \int c \, d\log_2 t $$

    by the trapezoidal rule, from the first available update. The time of settling is the last upward crossing of
    `level`, linear in log2 t. Absent (NaN) if 1 − s(0) < .05.

    Args:
        steps: Ascending, step 0 first.
        similarity: At each step, at most 1: CKA, PWCCA, ...
        level: Value that counts as settled.

    Raises:
        UserError: The steps do not start with 0, or their number differs from that of the values.

    >>> found = normalised_convergence([0, 1, 4, 16, 64, 256, 1024], [0.2, 0.2, 0.24, 0.44, 0.76, 0.92, 1])
    >>> round(found.time), round(found.area, 2)
    (256, 0.49)
    """
    times, curve = checked_curve(steps, similarity)
    if times[0] != 0:
        raise UserError(f"Convergence is measured from step 0. Got steps from {times[0]:g} on. Measure step 0 too.")
    if not 1 - curve[0] >= _LEAST_CHANGE:
        return Convergence(values=np.full(len(times), np.nan), time=np.nan, before=np.nan, after=np.nan, area=np.nan)
    values = (curve - curve[0]) / (1 - curve[0])
    crossing = last_crossing(times, values, level)
    return Convergence(
        values=values,
        time=float(crossing),
        before=crossing.before,
        after=crossing.after,
        area=_mean_over_log_time(times[1:], values[1:]),
    )


def _mean_over_log_time(times: np.ndarray, values: np.ndarray) -> float:
    if len(times) < 2:
        return math.nan
    logs = np.log2(times)
    return float(np.trapezoid(values, logs) / (logs[-1] - logs[0]))
