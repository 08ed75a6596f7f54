"""Training times that are only bounds.

An event found at the first checkpoint may have happened at any earlier update, and a change that continues at the last
one may end at any later update. A number computed from such times may really be lower or higher; a claim passes this to
its condition (`Condition.reach`), and no verdict depends on the unknown side.

Readings return the two parts of `reach` as separate numbers, since they differ between seeds: how far the truth may lie
below and above, NaN if unlimited. The mean over seeds is then the reach of the mean.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from infoflow.heads import Crossing, is_finished

Reach = tuple[float, float]
"""How far the truth may lie below and above the reading; NaN: without limit."""
EXACT: Reach = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Bound:
    """Whether the true time may be earlier or later."""

    earlier: bool = False
    later: bool = False


def of_crossing(crossing: Crossing, numbers: np.ndarray) -> Bound:
    """The bound of a crossing of the curve `numbers`, (1 + R, update), at a level that is a share of its change."""
    return Bound(earlier=crossing.before == 0, later=not finished(numbers))


def of_extremum(place: int, num: int) -> Bound:
    """The bound of the time of an extremum at checkpoint number `place` of `num` after step 0."""
    return Bound(earlier=place == 0, later=place == num - 1)


def finished(numbers: np.ndarray) -> bool:
    """Whether the curve in the first row has settled; further rows are its replicates."""
    errors = numbers[1:].std(axis=0) if len(numbers) > 2 else np.zeros(numbers.shape[1])
    return is_finished(numbers[0], errors)


def of_difference(later: Bound, earlier: Bound) -> Reach:
    """The reach of the difference between the times `later` and `earlier`."""
    return limit(later.earlier or earlier.later), limit(later.later or earlier.earlier)


def of_distance(difference: float, reach: Reach) -> Reach:
    """The reach of a difference's absolute value, where `reach` is that of the difference."""
    nearer, farther = reach if difference >= 0 else reach[::-1]
    return abs(difference) if np.isnan(nearer) else 0.0, limit(np.isnan(nearer) or np.isnan(farther))


def limit(unknown: bool | np.bool) -> float:
    """One part of a reach: 0, or NaN on an unknown side."""
    return float("nan") if unknown else 0.0


def with_reach(numbers: np.ndarray, *reaches: Reach) -> np.ndarray:
    """The numbers (1 + R, K), followed by the reach of each or some of them: two columns each."""
    behind = np.array([part for reach in reaches for part in reach])
    return np.concatenate([numbers, np.tile(behind, (len(numbers), 1))], axis=1)


def reach_at(curve: np.ndarray, place: int) -> Reach:
    """The reach in the columns `place` and `place` + 1 of a claim's rows."""
    low, high = curve[0, place : place + 2]
    return float(low), float(high)


def of_order(
    times: np.ndarray, earlier: np.ndarray, later: np.ndarray, statistic: Callable[[np.ndarray], float]
) -> Reach:
    """The reach of a rank statistic of `times` that include bounds.

    Times that may be later move one by one, from either end of the list, to ranks behind all others; times that may be
    earlier move before all others. The minimum and maximum of `statistic` define the reach.
    """
    values = [statistic(moved) for moved in _moved(times, np.flatnonzero(earlier), np.flatnonzero(later))]
    read = statistic(times)
    return max(read - min(values), 0.0), max(max(values) - read, 0.0)


def _moved(times: np.ndarray, earlier: np.ndarray, later: np.ndarray) -> list[np.ndarray]:
    """The times with some of the bounds moved."""
    span = 1 + np.nanmax(times) - np.nanmin(times)
    found = []
    for first in _part(earlier):
        for last in _part(later):
            moved = times.copy()
            moved[first] = np.nanmin(times) - span - np.arange(len(first))
            moved[last] = np.nanmax(times) + span + np.arange(len(last))
            found.append(moved)
    return found


def _part(places: np.ndarray) -> list[np.ndarray]:
    """No place, and the first or last 1, 2, … places in either direction."""
    ways = [places, places[::-1]]
    return [places[:0], *(way[:num] for way in ways for num in range(1, len(places) + 1)),
            *(way[:num][::-1] for way in ways for num in range(1, len(places) + 1))]  # fmt: skip
