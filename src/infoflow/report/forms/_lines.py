"""Lines over x with their bands, marks, controls and names, and points in a plane."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ._chart import CONTROL, NAME, by_key, dash_of, finished, lit, opacity_if, shape_of, tips, with_field
from ._marks import Channel, Constant, Layer, Rows, calculated, channel, draw, flattened, point_style, unchanged

_LINE = 14  # pixels between names
_LETTER, _ROOM = 7, 300  # pixels per bold letter, and the width of a narrow picture
_PLACE = {"x": "across", "y": "at"}
_TITLE = 24  # pixels above the picture, for the axis title


def names_above(found: list[tuple[str, str, str]], room: float = _ROOM) -> Layer:
    """Place entries (mark, name, colour) above the picture, in two columns if these fit into `room` pixels."""
    texts = [f"{mark} {name}" for mark, name, _ in found]
    half = -(-len(texts) // 2)
    first, second = (max((_LETTER * len(text) for text in part), default=0) for part in (texts[:half], texts[half:]))
    rows = half if first + second < room else len(texts)
    table = pd.DataFrame(
        {
            "text": texts,
            "color": [color for _, _, color in found],
            "across": [(first + 12) * (index // rows) for index in range(len(texts))],
            "at": [_LINE * (index % rows - rows) - _TITLE for index in range(len(texts))],
        }
    )
    in_pixels = {name: channel(name, f"{field}:Q", scale=None, axis=None) for name, field in _PLACE.items()}
    color = channel("color", "color:N", scale=None)
    return draw("text", table, NAME, in_pixels, align="left", baseline="top", text="text:N", color=color)


SHARE = (0.0, 1.0)
POSITIVE = (0.0, float("inf"))
COSINE = (-1.0, 1.0)
ANY = (-float("inf"), float("inf"))
"""Range of an unbounded quantity; bands are cut at these bounds."""


DASHES = ((1, 0), (7, 3), (2, 3), (9, 3, 2, 3), (4, 2), (12, 4))
"""Dashes of lines of one colour, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineKind:
    """One of several lines of the same models, such as a ranking method or a kind of heads."""

    key: str
    label: str
    dash: tuple[int, ...]
    shape: str
    mark: str  # the shape as a character


def looks_of(found: Sequence[Any], field: str = "series", color: str = "") -> dict[str, Any]:
    """Colour (or one for all), dash and mark of each line, keyed by the values of `field`."""
    own = Constant(color) if color else by_key("color", field, [one.key for one in found], [one.color for one in found])
    return {"color": own, "strokeDash": dash_of(found, field), "shape": shape_of(found, field)}


def lines(
    rows: pd.DataFrame,
    at: dict[str, Any],
    look: dict[str, Any],
    *,
    light: Any = lit,
    band: float = 0.18,
    width: float = 2.2,
    size: int = 42,
    touch: int = 500,
    tooltip: list[Channel] | None = None,
    on: Callable[[pd.DataFrame], Rows] = unchanged,
    beneath: Sequence[Layer] = (),
    over: Sequence[Layer] = (),
) -> list[Layer]:
    """The layers of band, line, marks and hover targets; a size of 0 omits a part.

    Without `touch`, the marks carry the tooltip.

    Args:
        rows: A table with `low` and `high` for bands, and `seeds` for marks.
        at: The encodings `x` and `y`.
        look: The optional encodings `color`, `strokeDash`, `shape` and `detail`.
        light: Function that turns an opacity into one that dims.
        on: Transform of the rows before drawing, such as `timed`.
        beneath: Layers between bands and lines.
        over: Layers between lines and marks.
    """
    color = {name: look[name] for name in ("color", "detail") if name in look}
    dash, shape = ({name: look[name]} if name in look else {} for name in ("strokeDash", "shape"))
    known = bool(band) and bool(rows[["low", "high"]].notna().all(axis=1).any())
    found = [*([area(rows, at, light(band), {**color, **dash}, on)] if known else []), *beneath]
    found += [draw("line", on(rows), at, color, dash, strokeWidth=width, opacity=light()), *over]
    stated = {"tooltip": tooltip} if tooltip else {}
    if size:
        shown = {} if touch else stated
        found.append(draw("point", on(rows), point_style(rows), at, color, shape, shown, size=size, opacity=light()))
    if touch and stated:
        found.append(draw("point", on(rows), at, stated, size=touch, filled=True, opacity=0))
    return found


def area(
    rows: pd.DataFrame,
    at: dict[str, Any],
    opacity: Any,
    look: dict[str, Any],
    on: Callable[[pd.DataFrame], Rows] = unchanged,
) -> Layer:
    """The area from `low` to `high`; the dash field keeps lines of one colour apart."""
    known = rows.dropna(subset=["low", "high"])
    own = {name: channel for name, channel in look.items() if name in ("color", "detail")}
    if "strokeDash" in look and not isinstance(look["strokeDash"], Constant):
        own.setdefault("detail", look["strokeDash"]["shorthand"])
    low = with_field(at["y"], "low")
    return draw("area", on(known), own, x=at["x"], y=low, y2="high:Q", opacity=opacity)


def whiskers(
    rows: pd.DataFrame, at: dict[str, Any], look: dict[str, Any], ends: dict[str, tuple[str, str]], **style: Any
) -> list[Layer]:
    """A thin line along each axis in `ends`, between the two columns given there."""
    style = {"strokeWidth": 1.2, "opacity": lit(0.6), **look, **style}
    return [
        draw("rule", rows, {**at, axis: with_field(at[axis], low), f"{axis}2": f"{high}:Q"}, style)
        for axis, (low, high) in ends.items()
    ]


def control_lines(
    rows: pd.DataFrame, at: dict[str, Any], style: dict[str, Any] = CONTROL, band: float = 0.10, by: str = "series"
) -> list[Layer]:
    """Grey lines of a control with their bands; none without rows."""
    if rows.empty:
        return []
    detail = {"detail": f"{by}:N"} if by else {}
    tooltip = tips("group:N|control", "layer:Q", "shown:N|value") if "shown" in rows else None
    line = draw("line", rows, style, at, detail, tooltip=tooltip, opacity=lit(1.0, 0.5) if by else None)
    grey = {"color": Constant("var(--control)"), **detail}
    return [area(rows, at, lit(band) if by else Constant(band), grey), line] if band else [line]


def level(value: float, style: dict[str, Any] = CONTROL, **at: Any) -> Layer:
    """A line across the picture at one value of the axis `x` or `y`."""
    ((name, axis),) = at.items()
    field = axis if isinstance(axis, str) else str(axis["shorthand"])
    return draw("rule", pd.DataFrame([{field.partition(":")[0]: value}]), style, {name: axis})


def hovered_layer(layers: list[int], x: Channel) -> Layer:
    """A line at the layer under the pointer, anywhere in the section."""
    there = opacity_if("datum.layer === at_layer", 0.7, 0)
    return draw("rule", pd.DataFrame({"layer": layers}), color="var(--soft)", strokeWidth=1, x=x, opacity=there)


def folded(rows: pd.DataFrame, by: str | list[str]) -> Layer:
    """Store the rows of a chart as one row per value of `by`, which takes a third of the bytes."""
    columns = [column for column in rows if column not in by]
    return flattened(rows.groupby(by, sort=False)[columns].agg(list).reset_index(), columns)


def of_one(rows: pd.DataFrame, key: str) -> Layer:
    """A chart of one line's rows, without repeating the line's name in each row."""
    return calculated(rows, series=json.dumps(key))


Name = tuple[str, str, str]
"""A mark, its name, and its colour."""


def named_lines(
    rows: Any,
    at: dict[str, Any],
    found: Sequence[Any],
    height: int,
    *,
    field: str = "series",
    mark: str = "●",
    beneath: Sequence[Layer] = (),
    above: Sequence[Layer] = (),
    names: Sequence[Name] = (),
    **how: Any,
) -> dict[str, Any]:
    """Draw the lines of `rows` at `at`, with their names above the picture.

    Each line in `found` has a key (in the column `field`), a label, a color, a dash and a shape; `mark` precedes its
    name. `beneath` and `above` are further layers, with their `names`; for `how`, see `lines`.
    """
    drawn = lines(rows, at, looks_of(found, field), **how)
    stated = [*((mark, one.label, one.color) for one in found), *names]
    return finished([*beneath, *drawn, *above, names_above(stated)], height)


def points(
    trained: pd.DataFrame,
    untrained: pd.DataFrame,
    at: dict[str, Any],
    look: dict[str, Any],
    *,
    ends: dict[str, tuple[str, str]],
    tooltip: list[Channel],
    least: float = 0.0,
) -> list[Layer]:
    """The layers of a scatter plot.

    Args:
        at: The encodings `x` and `y`.
        look: The encodings `color` and `shape`.
        ends: For `x` and `y`: the two columns that a whisker connects.
        least: Minimum length of a whisker that extends beyond its point.
    """
    grey = {"shape": "cross", "filled": True, "size": 30, "color": "var(--control)", "opacity": 0.65, "clip": True}
    place = [str(channel["shorthand"]).partition(":")[0] for channel in at.values()]
    bars = []
    for axis, (low, high) in ends.items():
        long = trained.loc[trained[high] - trained[low] > least, list(dict.fromkeys(["series", *place, low, high]))]
        color = {"color": look["color"]}
        bars += whiskers(long, at, color, {axis: (low, high)}, strokeWidth=1, opacity=lit(0.5))
    bounds = [column for pair in ends.values() for column in pair]
    marks = trained.drop(columns=[column for column in bounds if column not in place])
    return [
        draw("point", untrained[place], grey, at),
        *bars,
        draw("point", marks, at, look, filled=True, size=32, tooltip=tooltip, opacity=lit(0.75)),
    ]
