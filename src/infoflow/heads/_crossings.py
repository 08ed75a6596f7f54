"""The time at which a curve over training reaches a level, bounded by the checkpoints around it."""

import math

import numpy as np
from numpy.typing import ArrayLike

from infoflow.foundation import UserError

_ENDS = 3  # points of a level
_EQUAL = 1e-12  # a value this close below a level has reached it, up to rounding


class Crossing(float):
    """The update at which a curve reaches a level, linear in log2 t between the checkpoints `before` and `after`.

    NaN if it never does.
    """

    before: float
    after: float

    def __new__(cls, time: float, before: float, after: float) -> "Crossing":
        crossing = super().__new__(cls, time)
        crossing.before, crossing.after = before, after
        return crossing

    def __repr__(self) -> str:
        return f"{float(self):.4g} ({self.before:g}, {self.after:g}]"

    def __reduce__(self) -> tuple:
        return Crossing, (float(self), self.before, self.after)


def last_crossing(steps: np.ndarray, values: np.ndarray, level: float) -> Crossing:
    """The last crossing from below to `level`; between step 0 and the next step, only the latter is known."""
    reached = values >= level - _EQUAL
    upward = np.flatnonzero(~reached[:-1] & reached[1:])
    if len(upward) == 0:
        return Crossing(math.nan, math.nan, math.nan)
    at = int(upward[-1])
    before, after = float(steps[at]), float(steps[at + 1])
    if before == 0:
        return Crossing(after, before, after)
    share = min((level - values[at]) / (values[at + 1] - values[at]), 1.0)
    return Crossing(2 ** (math.log2(before) + share * math.log2(after / before)), before, after)


def checked_curve(steps: ArrayLike, values: ArrayLike) -> tuple[np.ndarray, ...]:
    """Steps and values as float64 arrays.

    Raises:
        UserError: Their numbers differ, or the steps do not ascend from 0 or later.
    """
    times, curve = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if times.ndim != 1 or times.shape != curve.shape or len(times) == 0:
        raise UserError(f"A curve needs one value for each step. Got shapes {times.shape} and {curve.shape}.")
    if times[0] < 0 or (np.diff(times) <= 0).any():
        raise UserError(f"The steps of a curve must ascend, from 0 on. Got {times[:20].tolist()}. Sort them.")
    return times, curve


def is_finished(curve: ArrayLike, errors: ArrayLike) -> bool:
    """Whether a curve over training has settled.

    Its last three values must all be closer to their mean than a tenth of the whole change, or than two of their
    standard errors.

    Args:
        curve: Values at ascending steps, including step 0 if known.
        errors: Their standard errors; 0 if unknown.
    """
    values = np.asarray(curve, dtype=np.float64)
    sigmas = np.broadcast_to(np.asarray(errors, dtype=np.float64), values.shape)
    end = values[-_ENDS:].mean()
    change = abs(end - values[:_ENDS].mean())
    return bool((np.abs(values[-_ENDS:] - end) <= np.maximum(0.1 * change, 2 * sigmas[-_ENDS:])).all())
