"""The chart of the objective map: labelled points in a plane."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._in_words import number
from infoflow.report._theme import Series
from infoflow.report.forms._chart import NAME, color_of, finished, lit, shape_of, tips
from infoflow.report.forms._marks import Layer, channel, draw, expression

_WIDTH, _HEIGHT = 252, 340  # pixels that fit points and labels; a wider panel has margins
_MARGIN = 22
MEAN = -1
_LETTER, _LINE = 6.3, 13.0  # pixels per letter, and between lines
_MARK = 6.0  # half of a mark
_NEAR, _FAR = 9.0, 20.0  # pixels from a point to its label, and to a label with a leader line


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaneView:
    """The visible part of the plane: its centre, and pixels per unit of distance."""

    x: float
    y: float
    pixels: float

    @classmethod
    def around(cls, rows: pd.DataFrame) -> "PlaneView":
        """The view that contains all of these points."""
        low, high = rows[["x", "y"]].min(), rows[["x", "y"]].max()
        spans = high - low
        room = (_WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN - 20)
        pixels = min(side / max(span, 1e-9) for side, span in zip(room, spans, strict=True))
        return cls(x=float(low["x"] + high["x"]) / 2, y=float(low["y"] + high["y"]) / 2, pixels=min(pixels, 1e6))

    def at(self, rows: pd.DataFrame) -> np.ndarray:
        """The points in pixels, y downwards."""
        x = _WIDTH / 2 + (rows["x"] - self.x) * self.pixels
        y = _HEIGHT / 2 - (rows["y"] - self.y) * self.pixels
        return np.stack([x, y], axis=1)

    def back(self, x: float, y: float) -> tuple[float, float]:
        """Convert a pixel position to a point of the plane."""
        return self.x + (x - _WIDTH / 2) / self.pixels, self.y - (y - _HEIGHT / 2) / self.pixels

    @property
    def axes(self) -> dict[str, Any]:
        """Encodings of both positions: the vertical range is fixed, the horizontal range is as wide as the panel."""
        half = _HEIGHT / 2 / self.pixels
        ends = {
            name: expression(f"{self.x} {sign} width / {2 * self.pixels}")
            for name, sign in (("domainMin", "-"), ("domainMax", "+"))
        }
        across = {**ends, "nice": False, "zero": False}
        upwards = {"domain": [self.y - half, self.y + half], "nice": False, "zero": False}
        return {"x": channel("x", "x:Q", axis=None, scale=across), "y": channel("y", "y:Q", axis=None, scale=upwards)}


def map_chart(rows: pd.DataFrame, series: list[Series], view: PlaneView, grey: bool = False) -> dict[str, Any]:
    """Draw the points of the mean (`seed` −1) and of each seed; `rows` have the columns `series` and `label`.

    The columns `to_x` and `to_y` are the position of the nearest neighbour; `grey` draws an unlabelled control.
    """
    mean, seeds = rows[rows["seed"] == MEAN], rows[rows["seed"] != MEAN]
    axes, look = view.axes, {"color": color_of(series), "shape": shape_of(series)}
    links = mean[["x", "y", "to_x", "to_y"]]
    layers = [draw("rule", links, axes, _TO, color="var(--control)", strokeWidth=1, opacity=0.5)]
    if grey:
        cross = {"shape": "cross", "size": 40, "color": "var(--control)", "filled": True}
        layers.append(draw("point", mean, axes, cross, tooltip=_TIPS))
    else:
        layers += _seeds(mean, seeds, axes, look["color"]) if len(seeds) else []
        layers += _names(mean, view, look["color"])
        layers.append(draw("point", mean, axes, look, filled=True, size=70, opacity=1, tooltip=_TIPS))
    return finished([*layers, *_measure(view, rows)], _HEIGHT)


_TO = {"x2": "to_x:Q", "y2": "to_y:Q"}
_TIPS = tips("label:N|objective", "family:N|family", "nearest_label:N|nearest", "distance:N|at the distance")


def _seeds(mean: pd.DataFrame, seeds: pd.DataFrame, axes: dict[str, Any], color: Any) -> list[Layer]:
    centres = mean.set_index("series")[["x", "y"]].rename(columns={"x": "to_x", "y": "to_y"})
    tied = seeds[["series", "x", "y"]].join(centres, on="series")
    return [
        draw("rule", tied, axes, _TO, strokeWidth=1, color=color, opacity=lit(0.5)),
        draw("point", tied, axes, filled=True, size=12, color=color, opacity=lit(0.8)),
    ]


def _names(mean: pd.DataFrame, view: PlaneView, color: Any) -> list[Layer]:
    """The label of each point, with a leader line if there is no room for the label next to the point."""
    places = place_names(view.at(mean), mean["label"].tolist(), _WIDTH, _HEIGHT - 20)
    found = []
    for row, place in zip(mean.to_dict("records"), places, strict=True):
        x, y = view.back(place.x, place.y)
        end = view.back(place.x - (3 if place.to_right else -3), place.y)
        name = {"x": x, "y": y, "series": row["series"], "label": row["label"]}
        line = {"from_x": row["x"], "from_y": row["y"], "end_x": end[0], "end_y": end[1]}
        found.append({**name, **line, "align": "left" if place.to_right else "right", "led": place.led})
    table, axes = pd.DataFrame(found), view.axes
    led = table.loc[table["led"], ["series", "from_x", "from_y", "end_x", "end_y"]]
    led = led.rename(columns={"from_x": "x", "from_y": "y"})
    line = {"strokeWidth": 0.8, "x2": "end_x:Q", "y2": "end_y:Q", "color": color, "opacity": lit(0.6)}
    name = {**NAME, "baseline": "middle", "text": "label:N", "color": color, "opacity": lit(1.0, 0.2)}
    texts = {align: table.loc[table["align"] == align, ["x", "y", "series", "label"]] for align in ("left", "right")}
    return [
        *([draw("rule", led, axes, line)] if len(led) else []),
        *(draw("text", own, axes, name, align=align) for align, own in texts.items() if len(own)),
    ]


def _measure(view: PlaneView, rows: pd.DataFrame) -> list[Layer]:
    """A scale bar of a round length, since only distances are meaningful, not axes."""
    wanted = 70 / view.pixels
    length = next(
        (step for step in (m * 10.0**e for e in range(2, -10, -1) for m in (5, 2, 1)) if step <= wanted), wanted
    )
    (left, y), (right, _) = view.back(8, _HEIGHT - 8), view.back(8 + length * view.pixels, _HEIGHT - 8)
    axes = view.axes
    line = pd.DataFrame([{"x": left, "y": y, "to_x": right}])
    text = pd.DataFrame([{"x": right, "y": y, "text": number(length)}])
    return [
        draw("rule", line, axes, color="var(--soft)", strokeWidth=1.4, x2="to_x:Q"),
        draw("text", text, axes, align="left", dx=5, baseline="middle", color="var(--soft)", text="text:N"),
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelPlace:
    """Position of a label in pixels, y downwards."""

    x: float
    y: float
    to_right: bool  # whether the text begins at x; otherwise it ends there
    led: bool  # whether a line connects the label to its point


def place_names(points: np.ndarray, names: Sequence[str], width: float, height: float) -> list[LabelPlace]:
    """Place each label so that it overlaps neither labels nor points, where possible.

    Distances between points are fixed in pixels at every width, so labels that are apart stay apart. Labels at the edge
    are placed first, each as close to its point as possible, on the side with more room.
    """
    taken = [(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in points.tolist()]
    found: dict[int, LabelPlace] = {}
    for index in np.argsort(points[:, 1], kind="stable").tolist():
        x, y = points[index].tolist()
        room = _LETTER * len(names[index])
        marks = [box for at, box in enumerate(taken[: len(points)]) if at != index]
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
    inside = [
        one
        for one in options
        if _LINE / 2 <= one.y <= height - _LINE / 2 and (one.x + room <= width if one.to_right else one.x >= room)
    ]
    return inside or options


def _extent(place: LabelPlace, room: float) -> tuple[float, float, float, float]:
    left = place.x if place.to_right else place.x - room
    return left, place.y - _LINE / 2, left + room, place.y + _LINE / 2


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
