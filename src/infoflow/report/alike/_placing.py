"""Where the names of points go: beside them, apart from each other, at any width of the picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

_LETTER, _LINE = 6.3, 13.0  # pixels of a letter, and between lines
_MARK = 6.0  # half of a mark
_NEAR, _FAR = 9.0, 20.0  # pixels from a point to its name, and to one that a line leads to


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelPlace:
    """Of a name, in pixels, y downwards."""

    x: float
    y: float
    to_right: bool  # the text begins there, else it ends there
    led: bool  # a line leads from the point to it


def place_names(points: np.ndarray, names: Sequence[str], width: float, height: float) -> list[LabelPlace]:
    """A place for each name, free of other names and of other points where there is one.

    Pixels between points are the same at every width of the picture, so that what is apart stays apart. Names at the
    edge come first, each as near to its point as it can, to the side where there is more room.
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
    """Places for a name: beside the point, then above and below on either side, farther and farther."""
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
