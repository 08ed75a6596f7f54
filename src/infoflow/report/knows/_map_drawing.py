"""Dots of a map: one row of all layers as hand-written SVG (a few bytes per dot), and a chart for export."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from .._theme import FONT
from ..forms._chart import by_key, finished
from ..forms._marks import channel, draw

_CELL, _GAP = 100, 6  # units per layer square in the row, and between squares
_LABEL = 17


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Points of one kind."""

    label: str
    color: str
    shape: str  # circle, square, triangle, diamond, cross


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Space:
    """One model's points in every layer; all lists share the order of the points."""

    key: str
    label: str
    slot: int
    layers: list[int]
    places: np.ndarray  # (layer, point, 2) in 0..1, y downwards
    group: list[int]
    strength: list[float]  # opacity
    hollow: list[bool]
    titles: list[str]

    @property
    def live(self) -> dict[str, Any]:
        """Data for the page's script; positions in thousandths."""
        return {
            "key": self.key,
            "places": [(1000 * layer).round().astype(int).ravel().tolist() for layer in self.places],
            "group": self.group,
            "strength": [round(value, 2) for value in self.strength],
            "hollow": [index for index, hollow in enumerate(self.hollow) if hollow],
            "titles": self.titles,
        }


def strip_svg(space: Space, groups: list[Group]) -> Markup:
    """All layers in a row.

    Equal dots form one path of zero-length lines, whose round caps are the dots.
    """
    width = len(space.layers) * (_CELL + _GAP) - _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_CELL + _LABEL}" font-family="{FONT}" '
        f'font-size="15" fill="none" stroke-linecap="round" aria-hidden="true">'
    ]
    for index, layer in enumerate(space.layers):
        left = index * (_CELL + _GAP)
        parts.append(f'<g transform="translate({left},0)" data-layer="{layer}">')
        parts.append(f'<rect width="{_CELL}" height="{_CELL}" rx="4" fill="var(--tint, #f6f7f9)"/>')
        parts += _dots(space, groups, index)
        parts.append(f'<text x="{_CELL / 2}" y="{_CELL + _LABEL - 3}" text-anchor="middle" fill="var(--soft)">')
        parts.append(f"{layer}</text></g>")
    return Markup("".join(parts) + "</svg>")


def _dots(space: Space, groups: list[Group], layer: int) -> list[str]:
    parts = []
    places = (_CELL * space.places[layer]).round().astype(int)
    keys = list(zip(space.group, space.strength, space.hollow, strict=True))
    for key in sorted(set(keys)):
        group, strength, hollow = key
        line = "".join(f"M{x} {y}h0" for (x, y), own in zip(places.tolist(), keys, strict=True) if own == key)
        opacity = "" if strength == 1 else f' opacity="{strength:.2f}"'
        parts.append(f'<path stroke="{groups[group].color}" stroke-width="3.6"{opacity} d="{line}"/>')
        if hollow:
            parts.append(f'<path stroke="var(--paper)" stroke-width="1.6" d="{line}"/>')
    return parts


def legend_mark(group: Group) -> Markup:
    """The group's mark for a legend."""
    return Markup(f'<path d="{MARKS[group.shape]}" fill="{escape(group.color)}"/>')


MARKS = {
    "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z",
    "square": "M-4.4-4.4H4.4V4.4H-4.4Z",
    "triangle": "M0-5.4L5.2 4H-5.2Z",
    "diamond": "M0-6L6 0L0 6L-6 0Z",
    "cross": "M-2-5.5H2V-2H5.5V2H2V5.5H-2V2H-5.5V-2H-2Z",
    "triangle-up": "M0-5.4L5.2 4H-5.2Z",
    "triangle-down": "M0 5.4L5.2-4H-5.2Z",
    "triangle-right": "M5.4 0L-4 5.2V-5.2Z",
    "triangle-left": "M-5.4 0L4 5.2V-5.2Z",
}
"""Outlines around the origin, 10 units wide."""

_VEGA_SHAPES = {"triangle": "triangle-up"}


def map_chart(space: Space, groups: list[Group]) -> dict[str, Any]:
    """All layers of one model side by side, in rows, as a Vega-Lite specification for files."""
    columns = min(len(space.layers), 4)
    rows = -(-len(space.layers) // columns)
    frame = pd.concat([_cell_rows(space, index, columns, rows) for index in range(len(space.layers))])
    labels = pd.DataFrame(
        [{"x": i % columns, "y": rows - i // columns, "text": f"layer {layer}"} for i, layer in enumerate(space.layers)]
    )
    names = [str(index) for index in range(len(groups))]
    shapes, colors = ([_VEGA_SHAPES.get(one.shape, one.shape) for one in groups], [one.color for one in groups])
    x = channel("x", "x:Q", axis=None, scale={"domain": [0, columns], "nice": False})
    y = channel("y", "y:Q", axis=None, scale={"domain": [0, rows], "nice": False})
    look = {"x": x, "y": y, "shape": by_key("shape", "group", names, shapes)}
    fill, stroke = (by_key(name, "group", names, colors) for name in ("fill", "stroke"))
    full, hollow = frame[~frame["hollow"]], frame[frame["hollow"]]
    opacity = channel("opacity", "strength:Q", scale=None)
    layers = [
        draw("point", full, look, filled=True, size=9, opacity=opacity, fill=fill),
        draw("point", hollow, look, filled=False, size=14, strokeWidth=1, stroke=stroke),
        draw("text", labels, align="left", baseline="top", dx=4, color="var(--soft)", x=x, y=y, text="text:N"),
    ]
    return finished(layers, 95 * rows)


def _cell_rows(space: Space, index: int, columns: int, rows: int) -> pd.DataFrame:
    places = space.places[index].round(3)
    return pd.DataFrame(
        {
            "x": index % columns + places[:, 0],
            "y": rows - index // columns - places[:, 1],
            "group": [str(group) for group in space.group],
            "strength": np.round(space.strength, 2),
            "hollow": space.hollow,
        }
    )
