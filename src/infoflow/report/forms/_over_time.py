"""Charts over training: lines by update, and cells of layers by update."""

import json
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from .._theme import RANK_STEPS
from ._chart import HEIGHT, amount, finished, lit, spread, tips, with_field
from ._lines import lines
from ._time_axis import NOW, TimeAxis, at_now, timed

ROW_NAME = {
    "align": "left",
    "baseline": "bottom",
    "fontSize": 10.5,
    "dy": -1,
    "limit": alt.ExprRef("width"),
    "color": "var(--ink)",
}
"""Of a row, above what it shows."""
_GAP = 13  # pixels between names at the ends of lines
_CELL = 20  # pixels of a layer


def time_lines(
    axis: TimeAxis,
    rows: pd.DataFrame,
    y: dict[str, Any],
    look: dict[str, Any],
    *,
    height: int = HEIGHT,
    names: pd.DataFrame | None = None,
    room: float = 0.0,
    beneath: Sequence[alt.Chart] = (),
    tooltip: list[alt.Tooltip] | None = None,
    light: Any = lit,
    band: float = 0.14,
    width: float = 1.9,
) -> dict[str, Any]:
    """Lines of `value` by `update` with their bands, a dot where the page has come to, and names at their ends.

    Args:
        axis: Of the time.
        rows: With series, update, value, low, high, and what `look` tells apart.
        y: The axis of values (see `amount`).
        look: The encodings `color`, `strokeDash` and `detail`, as far as there are.
        names: Rows with series, update, value and `text`, with what `look` tells apart.
        room: Share of the axis for these names.
        beneath: Controls, drawn first.
        light: From an opacity to one that dims.
    """
    axis, keys = axis.with_room(room), list(dict.fromkeys(rows["series"]))
    at = {"x": axis.channel(), "y": alt.Y(**y)}
    own = {name: look[name] for name in ("color", "detail") if name in look}
    base = timed(alt.Chart(rows))
    dots = base.mark_point(filled=True, size=48).encode(**at, **own, opacity=at_now(1, 0))
    drawn = lines(
        rows, at, look, chart=lambda own: timed(alt.Chart(own)), light=light, band=band, width=width, size=0, touch=0
    )
    layers = [axis.marker(keys), *beneath, *drawn, dots]
    doubtful = rows[axis.suspected(rows)]
    if len(doubtful):
        hollow = timed(alt.Chart(doubtful)).mark_point(size=64, filled=False, strokeWidth=1.6, fill="var(--paper)")
        layers.append(hollow.encode(**at, **own, opacity=light()))
    if tooltip:
        layers.append(base.mark_point(filled=True, size=160, opacity=0).encode(**at, tooltip=tooltip))
    if names is not None and len(names):
        domain = y["scale"].to_dict().get("domain") if hasattr(y["scale"], "to_dict") else None
        low, high = domain or (float(rows["value"].min()), float(rows["value"].max()))
        placed = spread(list(names["value"]), _GAP / height * (high - low), high)
        mark = timed(alt.Chart(names.assign(at=placed))).mark_text(align="left", dx=6, fontSize=10.5, fontWeight="bold")
        layers.append(
            mark.encode(x=at["x"], y=with_field(at["y"], "at"), text=alt.Text("text:N"), opacity=light(), **own)
        )
    return axis.finished(layers, height, keys)


def layer_cells(
    axis: TimeAxis, rows: pd.DataFrame, ends: tuple[float, float], unit: str, layer: str = "layer"
) -> dict[str, Any]:
    """Squares of layers (upwards) by updates (across) of one line: the stronger the colour, the higher `value`.

    A frame is around the checkpoint that the page has come to.
    """
    key = str(rows["series"].iloc[0])
    updates = sorted({int(update) for update in rows["update"]})
    order = sorted({int(each) for each in rows["layer"]}, reverse=True)
    held = {str(u): edge for u, edge in zip(updates, axis.edges(key, updates).tolist(), strict=True)}
    digits = rows[["layer", "update", "value"]].assign(value=[_digits(value, ends) for value in rows["value"]])
    doubtful = axis.suspected(rows)
    base, hollow = (_flattened(digits[chosen], key) for chosen in (~doubtful, doubtful))
    x, x2 = axis.channel(), alt.X2("x2:Q")
    y = alt.Y("layer:O", title=None, sort=order, axis=alt.Axis(title=layer, domain=False, ticks=False))
    scale = alt.Scale(domain=list(ends), range=[0.04, 1], clamp=True)
    look = {"opacity": alt.Opacity("value:Q", scale=scale, legend=None)}
    named = f"value:Q|{unit}|.4g" if unit else "value:Q||.4g"
    tooltip = tips("layer:O", "update:Q||,", named)
    place = {"x": x, "x2": x2, "y": y}
    marks = [base.mark_rect(color="var(--heat-2)").encode(**place, **look, tooltip=tooltip)]
    if doubtful.any():
        rim = hollow.mark_rect(filled=False, stroke="var(--heat-2)", strokeWidth=1.4)
        marks.append(rim.encode(**place, **look, tooltip=tooltip))
    frames = alt.Chart(pd.DataFrame({"update": updates})).transform_calculate(**_edges(), series=json.dumps(key))
    height = max(_CELL * len(order), 60)
    around = frames.mark_rect(filled=False, stroke="var(--ink)", strokeWidth=1.6)
    span = {"y": alt.YValue(0), "y2": alt.Y2Value(height)}
    return axis.finished([*marks, around.encode(x=x, x2=x2, **span, opacity=at_now(1, 0))], height, [key], cells=held)


def _flattened(digits: pd.DataFrame, key: str) -> alt.Chart:
    grouped = digits.groupby("layer", sort=False)[["update", "value"]].agg(list).reset_index()
    base = alt.Chart(grouped).transform_flatten(["update", "value"])
    return base.transform_calculate(**_edges(), series=json.dumps(key))


def layer_profile(
    axis: TimeAxis, rows: pd.DataFrame, ends: tuple[float, float], title: str, color: alt.Color
) -> dict[str, Any]:
    """The values by layer at the checkpoint that the page has come to; pale: at the end of training."""
    keys = list(dict.fromkeys(rows["series"]))
    digits = rows[["series", "layer", "update", "value"]].assign(
        value=[_digits(value, ends) for value in rows["value"]]
    )
    grouped = digits.groupby(["series", "layer"], sort=False)[["update", "value"]].agg(list).reset_index()
    base = alt.Chart(grouped).transform_flatten(["update", "value"])
    order = sorted({int(each) for each in rows["layer"]})
    margin = 0.06 * (ends[1] - ends[0]) or 0.1
    x = alt.X(
        "layer:Q",
        title="layer",
        axis=alt.Axis(values=order, format="d", labelOverlap=True),
        scale=alt.Scale(domain=[order[0] - 0.2, max(order[-1], order[0] + 1) + 0.2], nice=False, zero=False),
    )
    at = {"x": x, "y": alt.Y(**amount("value", title, [ends[0] - margin, ends[1] + margin]))}
    last = digits.loc[digits["update"] == digits.groupby("series")["update"].transform("max")]
    final = alt.Chart(last.drop(columns="update")).mark_line(strokeWidth=1.2, strokeDash=[2, 3])
    now = base.transform_filter(NOW)
    tooltip = tips("series:N|model", "layer:Q", "update:Q||,", "value:Q||.4g")
    layers = [
        final.encode(**at, color=color, opacity=lit(0.55)),
        now.mark_line(strokeWidth=2.2).encode(**at, color=color, opacity=lit()),
        now.mark_point(filled=True, size=46).encode(**at, color=color, opacity=lit(), tooltip=tooltip),
    ]
    return finished(layers, 170, **axis.parameters(keys))


def layer_color(layers: Sequence[int], field: str = "layer") -> alt.Color:
    """From the lowest layer, pale, to the top."""
    order = sorted(set(layers))
    scale = alt.Scale(domain=order, range=layer_shades(order))
    return alt.Color(f"{field}:O", scale=scale, legend=None)


def layer_shades(layers: Sequence[int]) -> list[str]:
    """The colours of these layers, in their order."""
    last = max(len(layers) - 1, 1)
    return [f"var(--rank-{round((RANK_STEPS - 1) * place / last)})" for place in range(len(layers))]


def _edges() -> dict[str, str]:
    return {"x": "cells[datum.update][clock][0]", "x2": "cells[datum.update][clock][1]"}


def _digits(value: float, ends: tuple[float, float]) -> float:
    """Four digits of the scale's width: finer than any colour."""
    width = (ends[1] - ends[0]) or 1.0
    step = width / 2000
    return float(f"{round(value / step) * step:.6g}") if value == value else value
