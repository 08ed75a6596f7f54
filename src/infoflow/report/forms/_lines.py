"""Lines by x with their bands, marks and controls."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from ._chart import CONTROL, color_of, dash_of, lit, opacity_if, shape_of, tips, with_field
from ._hollow import point_style

SHARE = (0.0, 1.0)
POSITIVE = (0.0, float("inf"))
COSINE = (-1.0, 1.0)
ANY = (-float("inf"), float("inf"))
"""What a quantity can be: bands are not drawn beyond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineKind:
    """One of several lines of the same models: an order or way of choosing, a kind of heads."""

    key: str
    label: str
    dash: tuple[int, ...]
    shape: str
    mark: str  # the shape as a character


def looks_of(found: Sequence[Any], field: str = "series", color: str = "") -> dict[str, Any]:
    """Colour (or one for all), dash and mark of each line by the values of a field."""
    own = alt.ColorValue(color) if color else color_of(found)
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
    tooltip: list[alt.Tooltip] | None = None,
    chart: Any = alt.Chart,
    beneath: Sequence[alt.Chart] = (),
    over: Sequence[alt.Chart] = (),
) -> list[alt.Chart]:
    """Band, line, marks and what the pointer touches; 0 leaves a part out. Without `touch` the marks have the tooltip.

    Args:
        rows: With `low` and `high`, and `seeds`, where bands and marks are wanted.
        at: The encodings `x` and `y`.
        look: The encodings `color`, `strokeDash`, `shape` and `detail`, as far as there are.
        light: From an opacity to one that dims.
        chart: Makes a chart of rows.
        beneath: What is drawn between bands and lines.
        over: What is drawn between lines and marks.
    """
    color = {name: look[name] for name in ("color", "detail") if name in look}
    dash, shape = ({name: look[name]} if name in look else {} for name in ("strokeDash", "shape"))
    known = bool(band) and bool(rows[["low", "high"]].notna().all(axis=1).any())
    found = [*([area(rows, at, light(band), {**color, **dash}, chart)] if known else []), *beneath]
    found += [chart(rows).mark_line(strokeWidth=width).encode(**at, **color, **dash, opacity=light()), *over]
    told = {"tooltip": tooltip} if tooltip else {}
    if size:
        marks = chart(rows).mark_point(size=size, **point_style(rows)).encode(**at, **color, **shape, opacity=light())
        found.append(marks if touch else marks.encode(**told))
    if touch and told:
        found.append(chart(rows).mark_point(size=touch, filled=True, opacity=0).encode(**at, **told))
    return found


def area(rows: pd.DataFrame, at: dict[str, Any], opacity: Any, look: dict[str, Any], chart: Any = alt.Chart) -> Any:
    """From `low` to `high`; lines of one colour stay apart by what their dash is about."""
    known = rows.dropna(subset=["low", "high"])
    own = {name: channel for name, channel in look.items() if name in ("color", "detail")}
    if isinstance(look.get("strokeDash"), alt.StrokeDash):
        own.setdefault("detail", alt.Detail(look["strokeDash"]["shorthand"]))
    low = with_field(at["y"], "low")
    return chart(known).mark_area().encode(x=at["x"], y=low, y2=alt.Y2("high:Q"), opacity=opacity, **own)


def control_lines(
    rows: pd.DataFrame, at: dict[str, Any], style: dict[str, Any] = CONTROL, band: float = 0.10, by: str = "series"
) -> list[alt.Chart]:
    """Lines of a control in grey, with their band; none without rows."""
    if rows.empty:
        return []
    detail = {"detail": alt.Detail(f"{by}:N")} if by else {}
    line = alt.Chart(rows).mark_line(**style).encode(**at, **detail, opacity=lit(1.0, 0.5) if by else alt.Undefined)
    if "shown" in rows:
        line = line.encode(tooltip=tips("group:N|control", "layer:Q", "shown:N|value"))
    grey = {"color": alt.ColorValue("var(--control)"), **detail}
    return [area(rows, at, lit(band) if by else alt.OpacityValue(band), grey), line] if band else [line]


def level(value: float, style: dict[str, Any] = CONTROL, **at: Any) -> alt.Chart:
    """A line across the picture at one value of the axis `x` or `y`."""
    ((name, axis),) = at.items()
    field = str(axis["shorthand"]).partition(":")[0]
    return alt.Chart(pd.DataFrame([{field: value}])).mark_rule(**style).encode(**{name: axis})


def hovered_layer(layers: list[int], x: alt.X) -> alt.Chart:
    """A line at the layer that is hovered somewhere in the section."""
    there = opacity_if("datum.layer === at_layer", 0.7, 0)
    return (
        alt.Chart(pd.DataFrame({"layer": layers}))
        .mark_rule(color="var(--soft)", strokeWidth=1)
        .encode(x=x, opacity=there)
    )


def folded(rows: pd.DataFrame, by: str | list[str]) -> alt.Chart:
    """A chart of rows that the page holds as one for each value of `by`, in a third of the bytes."""
    columns = [column for column in rows if column not in by]
    return alt.Chart(rows.groupby(by, sort=False)[columns].agg(list).reset_index()).transform_flatten(columns)


def of_one(rows: pd.DataFrame, key: str) -> alt.Chart:
    """A chart of the rows of one line, whose name each would repeat."""
    return alt.Chart(rows).transform_calculate(series=json.dumps(key))
