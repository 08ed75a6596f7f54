"""Lines over x with their bands, marks and controls."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ._chart import CONTROL, by_key, dash_of, lit, opacity_if, shape_of, tips, with_field
from ._hollow import point_style
from ._marks import Channel, Constant, Layer, Rows, calculated, draw, flattened, unchanged

SHARE = (0.0, 1.0)
POSITIVE = (0.0, float("inf"))
COSINE = (-1.0, 1.0)
ANY = (-float("inf"), float("inf"))
"""Range of an unbounded quantity; bands are cut at these bounds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineKind:
    """One of several lines of the same models, such as a ranking method or a kind of heads."""

    key: str
    label: str
    dash: tuple[int, ...]
    shape: str
    mark: str  # the shape as a character


def looks_of(found: Sequence[Any], field: str = "series", color: str = "") -> dict[str, Any]:
    """Colour (or one for all), dash and mark of each line, keyed by the values of a field."""
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
    """Band, line, marks and hover targets; a size of 0 omits a part.

    Without `touch`, the marks carry the tooltip.

    Args:
        rows: With `low` and `high` for bands, and `seeds` for marks.
        at: The encodings `x` and `y`.
        look: The optional encodings `color`, `strokeDash`, `shape` and `detail`.
        light: Function from an opacity to one that dims.
        on: Transform of the rows before drawing, such as `timed`.
        beneath: Layers between bands and lines.
        over: Layers between lines and marks.
    """
    color = {name: look[name] for name in ("color", "detail") if name in look}
    dash, shape = ({name: look[name]} if name in look else {} for name in ("strokeDash", "shape"))
    known = bool(band) and bool(rows[["low", "high"]].notna().all(axis=1).any())
    found = [*([area(rows, at, light(band), {**color, **dash}, on)] if known else []), *beneath]
    found += [draw("line", on(rows), at, color, dash, strokeWidth=width, opacity=light()), *over]
    told = {"tooltip": tooltip} if tooltip else {}
    if size:
        shown = {} if touch else told
        found.append(draw("point", on(rows), point_style(rows), at, color, shape, shown, size=size, opacity=light()))
    if touch and told:
        found.append(draw("point", on(rows), at, told, size=touch, filled=True, opacity=0))
    return found


def area(
    rows: pd.DataFrame,
    at: dict[str, Any],
    opacity: Any,
    look: dict[str, Any],
    on: Callable[[pd.DataFrame], Rows] = unchanged,
) -> Layer:
    """The area from `low` to `high`; lines of one colour stay separate by their dash field."""
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
    """A line at the layer that the reader hovers over anywhere in the section."""
    there = opacity_if("datum.layer === at_layer", 0.7, 0)
    return draw("rule", pd.DataFrame({"layer": layers}), color="var(--soft)", strokeWidth=1, x=x, opacity=there)


def folded(rows: pd.DataFrame, by: str | list[str]) -> Layer:
    """A chart whose data hold one row per value of `by`, which takes a third of the bytes."""
    columns = [column for column in rows if column not in by]
    return flattened(rows.groupby(by, sort=False)[columns].agg(list).reset_index(), columns)


def of_one(rows: pd.DataFrame, key: str) -> Layer:
    """A chart of one line's rows, without repeating the line's name in each."""
    return calculated(rows, series=json.dumps(key))
