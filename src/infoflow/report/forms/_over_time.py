"""Charts over training: lines by update, and layer × update cells."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from .._theme import RANK_STEPS
from ._chart import CONTROL, HEIGHT, NAME, amount, finished, lit, spread, tips, with_field
from ._lines import folded, lines
from ._marks import Channel, Constant, Layer, calculated, channel, draw, expression, filtered
from ._span import span
from ._time_axis import NOW, TimeAxis, at_now, timed

ROW_NAME = {
    "align": "left",
    "baseline": "bottom",
    "fontSize": 10.5,
    "dy": -1,
    "limit": expression("width"),
    "color": "var(--ink)",
}
"""Row name above its content."""
TOUCH = {"filled": True, "opacity": 0}
"""Invisible points as hover targets."""
HOLLOW_MARK = {"filled": False, "fill": "var(--paper)", "strokeWidth": 1.6}
_AT_END = {"align": "left", "dx": 6, "fontSize": 10.5}
_GAP = 13  # pixels between names at the ends of lines
_CELL = 20  # pixels per layer


def time_lines(
    axis: TimeAxis,
    rows: pd.DataFrame,
    y: Channel,
    look: dict[str, Any],
    *,
    by: str = "series",
    height: int = HEIGHT,
    names: Mapping[str, str] | None = None,
    room: float = 0.0,
    control: pd.DataFrame | None = None,
    beneath: Sequence[Layer] = (),
    tooltip: list[Channel] | None = None,
    light: Any = lit,
    band: float = 0.14,
    width: float = 1.9,
) -> dict[str, Any]:
    """Lines of `value` by `update` with bands, a dot at the page's current checkpoint, and names at their ends.

    Args:
        axis: The time axis.
        rows: With the columns series, update, value, low, high and seeds.
        y: The axis of values (see `amount`), with its domain.
        look: The optional encodings `color` and `strokeDash`.
        by: The column that distinguishes lines.
        names: Name of each line, at its end.
        room: Share of the axis reserved for names.
        control: Rows with series, update and `value`, drawn as dashed grey lines.
        beneath: Layers drawn first.
        light: Function from an opacity to one that dims.
    """
    axis, keys = axis.with_room(room), list(dict.fromkeys(rows["series"]))
    columns = dict.fromkeys(["series", by, "update", "value", "low", "high", "seeds"])
    rows = rows.loc[:, list(columns)].round(dict.fromkeys(("value", "low", "high"), 4))
    at, detail = {"x": axis.channel(), "y": y}, {} if by == "series" else {"detail": f"{by}:{_kind(rows[by])}"}
    look = look | detail
    own = {name: look[name] for name in ("color", "detail") if name in look}
    grey = [] if control is None or control.empty else [_control(control, at)]
    drawn = lines(rows, at, look, on=timed, light=light, band=band, width=width, size=0, touch=0)
    base, doubtful = timed(rows), rows[axis.suspected(rows)]
    dots = draw("point", base, at, own, filled=True, size=48, opacity=at_now(1, 0))
    layers = [axis.marker(keys), *grey, *beneath, *drawn, dots]
    if len(doubtful):
        layers.append(draw("point", timed(doubtful), at, own, HOLLOW_MARK, size=64, opacity=light()))
    if tooltip:
        layers.append(draw("point", base, at, TOUCH, size=160, tooltip=tooltip))
    if names:
        ends = rows.loc[rows.groupby(by)["update"].idxmax(), list(dict.fromkeys(["series", by, "update", "value"]))]
        low, high = y["scale"]["domain"]
        ends = ends.assign(text=ends[by].map(names), at=spread(list(ends["value"]), _GAP / height * (high - low), high))
        above = with_field(y, "at")
        layers.append(draw("text", timed(ends), NAME, own, _AT_END, x=at["x"], y=above, text="text:N", opacity=light()))
    return axis.finished(layers, height, keys)


def _kind(values: pd.Series) -> str:
    return "O" if pd.api.types.is_numeric_dtype(values) else "N"


def _control(rows: pd.DataFrame, at: dict[str, Any]) -> Layer:
    base = timed(rows[["series", "update", "value"]].round(4))
    return draw("line", base, CONTROL, at, detail="series:N", opacity=lit(1.0, 0.5))


def layer_cells(
    axis: TimeAxis, rows: pd.DataFrame, ends: tuple[float, float], unit: str, layer: str = "layer"
) -> dict[str, Any]:
    """Squares of one line, layers (upwards) by updates (across): stronger colours mean larger `value`.

    A frame marks the page's current checkpoint.
    """
    key = str(rows["series"].iloc[0])
    updates = sorted({int(update) for update in rows["update"]})
    order = sorted({int(each) for each in rows["layer"]}, reverse=True)
    held = {str(u): edge for u, edge in zip(updates, axis.edges(key, updates).tolist(), strict=True)}
    digits = _digits(rows[["layer", "update", "value"]], ends)
    across = {"x": axis.channel(), "x2": "x2:Q"}
    scale = {"domain": list(ends), "range": [0.04, 1], "clamp": True}
    look = {
        "y": channel("y", "layer:O", title=None, sort=order, axis={"title": layer, "domain": False, "ticks": False}),
        "opacity": channel("opacity", "value:Q", scale=scale, legend=None),
        "tooltip": tips("layer:O", "update:Q||,", f"value:Q|{unit}|.4g"),
    }
    edges, series = {name: f"cells[datum.update][clock][{side}]" for side, name in enumerate(across)}, json.dumps(key)
    doubtful = axis.suspected(rows)
    full, hollow = {"color": "var(--heat-2)"}, {"filled": False, "stroke": "var(--heat-2)", "strokeWidth": 1.4}
    marks = [
        draw("rect", calculated(folded(digits[chosen], "layer"), **edges, series=series), across, look, style)
        for chosen, style in ((~doubtful, full), (doubtful, hollow))
        if chosen.any() or style is full
    ]
    height = max(_CELL * len(order), 60)
    frames = calculated(pd.DataFrame({"update": updates}), **edges, series=series)
    frame = {"filled": False, "stroke": "var(--ink)", "strokeWidth": 1.6, "y": Constant(0), "y2": Constant(height)}
    marks.append(draw("rect", frames, across, frame, opacity=at_now(1, 0)))
    return axis.finished(marks, height, [key], cells=held)


def layer_profile(
    axis: TimeAxis, rows: pd.DataFrame, ends: tuple[float, float], title: str, color: Channel
) -> dict[str, Any]:
    """Values by layer at the page's current checkpoint; those at the end of training are pale."""
    digits = _digits(rows[["series", "layer", "update", "value"]], ends)
    order = sorted({int(each) for each in rows["layer"]})
    across = (order[0] - 0.2, max(order[-1], order[0] + 1) + 0.2)
    axis_of_layers = {"values": order, "format": "d", "labelOverlap": True}
    x = channel(
        "x", "layer:Q", title="layer", axis=axis_of_layers, scale={"domain": across, "nice": False, "zero": False}
    )
    at = {"x": x, "y": amount("y", "value", title, span(ends, margin=0.06)), "color": color}
    last = digits[digits["update"] == digits.groupby("series")["update"].transform("max")].drop(columns="update")
    now = filtered(folded(digits, ["series", "layer"]), NOW)
    tooltip = tips("series:N|model", "layer:Q", "update:Q||,", "value:Q||.4g")
    layers = [
        draw("line", last, at, strokeWidth=1.2, strokeDash=[2, 3], opacity=lit(0.55)),
        draw("line", now, at, strokeWidth=2.2, opacity=lit()),
        draw("point", now, at, filled=True, size=46, opacity=lit(), tooltip=tooltip),
    ]
    return finished(layers, 170, **axis.parameters(list(dict.fromkeys(rows["series"]))))


def layer_color(layers: Sequence[int], field: str = "layer") -> Channel:
    """Colours from the lowest layer (pale) to the top."""
    order = sorted(set(layers))
    scale = {"domain": order, "range": layer_shades(order)}
    return channel("color", f"{field}:O", scale=scale, legend=None)


def layer_shades(layers: Sequence[int]) -> list[str]:
    """Colours of these layers, in order."""
    last = max(len(layers) - 1, 1)
    return [f"var(--rank-{round((RANK_STEPS - 1) * place / last)})" for place in range(len(layers))]


def layer_legend(layers: Iterable[int]) -> list[dict[str, str]]:
    order = sorted({int(layer) for layer in layers})
    return [{"label": f"layer {each}", "color": shade} for each, shade in zip(order, layer_shades(order), strict=True)]


def _digits(rows: pd.DataFrame, ends: tuple[float, float]) -> pd.DataFrame:
    """Round to four digits of the scale's width, finer than any colour."""
    step = ((ends[1] - ends[0]) or 1.0) / 2000
    values = [float(f"{round(value / step) * step:.6g}") if value == value else value for value in rows["value"]]
    return rows.assign(value=values)
