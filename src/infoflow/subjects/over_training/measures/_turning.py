"""Turning points of a curve over training: a curve that goes and returns has no single time of change."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression

from infoflow.heads import Crossing, last_crossing

from ._phase import checked_phase

_ENDS = 3  # points of a level, and of an extremum
_CLEAR = 4.0  # standard errors beyond both ends: the maximum of about twenty points is tested
_SHARE = 0.25  # share of the change from end to end that a mere overshoot does not exceed


@dataclass(frozen=True, kw_only=True, slots=True)
class Turning:
    """The extremum of a curve that goes and returns, and the half-way times out and back."""

    turn: Crossing  # update of the extremum, with the neighbouring checkpoints
    value: float  # mean of the three points around it
    out: Crossing  # update at half of the way out
    back: Crossing  # update at half of the way back


def turning(steps: ArrayLike, values: ArrayLike, sigma: ArrayLike, minimum: float = 0.0) -> Turning | None:
    r"""The interior extremum furthest beyond the levels of both ends; None if the curve does not return.

    Levels and the extremum are means of three points, as in `phase`. The extremum counts if it lies beyond both ends by
    more than 4 standard errors of the difference, a quarter of the change from end to end, and `minimum`. Errors are at
    least the curve's own roughness, \(1.4826 \operatorname{median}|r_i|\), where \(r_i\) is the distance of a point
    from the straight line over \(\log_2 t\) between its neighbours, divided by its standard deviation for independent
    points: training noise exceeds the sampling error over sentences. Half-way times are crossings of the isotonic fit.
    (The thresholds are ours.)

    In simulated curves (5,000 updates, errors of .03 to .08 of the change, 200 draws each), seven kinds of monotone
    curves and flat ones had no turning point, except a straight line in t in one of 200 draws. At the default schedule,
    humps as high as the change were found in all draws, half as high in .95 to 1; with 12 checkpoints in .57 to .72 and
    .1 to .27: add checkpoints if a curve seems to return.

    Args:
        steps: Ascending, at least eight after step 0, which counts only for the first level.
        values: At each step.
        sigma: Standard error of each value.
        minimum: Smallest distance that counts.

    Raises:
        UserError: As in `phase`.
    """
    times, curve, errors = checked_phase(steps, values, sigma)
    later = times > 0
    t, y = times[later], curve[later]
    error = np.maximum(errors[later], _roughness(np.log2(t), y))
    ends = np.array([curve[:_ENDS].mean(), curve[-_ENDS:].mean()])
    means = np.convolve(y, np.ones(_ENDS) / _ENDS, mode="valid")
    beyond = np.stack([means - ends.max(), ends.min() - means])
    sign, place = np.unravel_index(beyond.argmax(), beyond.shape)
    spread = np.sqrt((error[place : place + _ENDS] ** 2).sum() + (error[-_ENDS:] ** 2).sum()) / _ENDS
    least = max(_CLEAR * spread, _SHARE * abs(ends[1] - ends[0]), minimum)
    middle = int(place) + 1  # of the three points
    if beyond[sign, place] <= least or not _ENDS <= middle < len(t) - _ENDS:
        return None
    top, way = float(means[place]), 1 - 2 * int(sign)
    return Turning(
        turn=Crossing(float(t[middle]), float(t[middle - 1]), float(t[middle + 1])),
        value=top,
        out=_half(t[: middle + 1], way * (y[: middle + 1] - ends[0]), way * (top - ends[0])),
        back=_half(t[middle:], way * (top - y[middle:]), way * (top - ends[1])),
    )


def _half(t: Float[np.ndarray, " step"], gone: Float[np.ndarray, " step"], whole: float) -> Crossing:
    """The time at half of the way; before the first of these checkpoints only a bound is known."""
    risen = IsotonicRegression().fit_transform(np.log2(t), gone) / whole
    if risen[0] >= 0.5:
        return Crossing(float(t[0]), 0.0, float(t[0]))
    return last_crossing(t, risen, 0.5)


def _roughness(x: Float[np.ndarray, " step"], y: Float[np.ndarray, " step"]) -> float:
    """Standard deviation of a point around a smooth curve, from distances to the lines between neighbours."""
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    residual = y[1:-1] - ((1 - share) * y[:-2] + share * y[2:])
    return float(1.4826 * np.median(np.abs(residual) / np.sqrt(1 + share**2 + (1 - share) ** 2)))
