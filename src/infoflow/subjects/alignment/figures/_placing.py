"""Positions of point labels: next to their points, without overlap at any width of the picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

_LETTER, _LINE = 6.3, 13.0  # pixels per letter, and between lines
_MARK = 6.0  # half of a mark
_NEAR, _FAR = 9.0, 20.0  # pixels from a point to its label, and to a label with a leader line


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelPlace:
    """Position of a label in pixels, y downwards."""

    x: float
    y: float
    to_right: bool  # the text begins there; otherwise it ends there
    led: bool  # a line connects the label to its point


def place_names(points: np.ndarray, names: Sequence[str], width: float, height: float) -> list[LabelPlace]:
    """Place each label clear of other labels and points where possible.

    Distances between points are fixed in pixels at every width, so labels that are apart stay apart. Labels at the edge
    are placed first, each as close to its point as possible, on the side with more room.
    """
    taken = [_box(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in points.tolist()]
    found: dict[int, LabelPlace] = {}
    for index in np.argsort(points[:, 1], kind="stable").tolist():
        x, y = points[index].tolist()
        room = _LETTER * len(names[index])
        marks = [box for place, box in enumerate(taken[: len(points)]) if place != index]
        options = [(place, _extent(place, room)) for place in _options(x, y, room, width, height)]
        free = [
            option for option in options if not any(_meet(option[1], box) for box in (*marks, *taken[len(points) :]))
        ]
        place, box = (free or options)[0]
        found[index] = place
        taken.append(box)
    return [found[index] for index in range(len(names))]


def _options(x: float, y: float, room: float, width: float, height: float) -> list[LabelPlace]:
    """Candidate positions for a label: left and right, then above and below on either side, at growing distances."""
    sides = [True, False] if x + _NEAR + room <= width or x < width / 2 else [False, True]
    shifts = chain([0.0], *((-step * _LINE, step * _LINE) for step in range(1, 24)))
    options = [
        LabelPlace(x=x + (1 if right else -1) * (_FAR if shift else _NEAR), y=y + shift, to_right=right, led=shift != 0)
        for shift in shifts
        for right in sides
    ]
    inside = [one for one in options if _LINE / 2 <= one.y <= height - _LINE / 2 and _fits(one, room, width)]
    return inside or options


def _fits(place: LabelPlace, room: float, width: float) -> bool:
    return place.x + room <= width if place.to_right else place.x - room >= 0


def _extent(place: LabelPlace, room: float) -> tuple[float, float, float, float]:
    left = place.x if place.to_right else place.x - room
    return _box(left, place.y - _LINE / 2, left + room, place.y + _LINE / 2)


def _box(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
    return left, top, right, bottom


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
