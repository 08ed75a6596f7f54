"""Interval dots: one row per compared item, with its label at the left and a reference."""

from typing import Any

import pandas as pd

from ._chart import CONTROL, VALUE, amount, bounded, finished, lit, tips, with_field
from ._hollow import point_style
from ._lines import ANY
from ._marks import Channel, Layer, also, channel, draw
from ._names import names_above

_GREY: dict[str, Any] = {"filled": True, "size": 55, "color": "var(--control)", "opacity": 1}
_ROOM = 130  # pixels next to row labels in narrow panels
_ONE_CONTROL = {"control": "control", "shape": "cross"}


def interval_dots(
    rows: pd.DataFrame,
    look: dict[str, Any],
    *,
    row: str = "label",
    title: str | None = None,
    bounds: tuple[float, float] = ANY,
    tooltip: list[Channel] | None = None,
    size: int = 70,
    more: list[Layer] | None = None,
    step: int = 40,
    dim: bool = True,
    grey: pd.DataFrame | None = None,
    legend: list[tuple[str, str, str]] | None = None,
    **axis: Any,
) -> dict[str, Any]:
    """One row per row of `rows`, in order, with `value`, `low`, `high`, and its number if the column `short` exists.

    A row's `baseline` is drawn as a dashed grey tick.

    Args:
        look: The optional encodings `color` and `shape`.
        more: Further marks on the same rows.
        dim: Whether rows dim while another line is highlighted.
        grey: Control rows with `value` and `shown` (the value as text), drawn as grey crosses. Several controls
            also need `control` (the name) and `shape`.
        legend: Names of marks above the picture (see `names_above`).
        axis: Options of the value axis (see `amount`).
    """
    rows = bounded(rows, bounds)
    names = list(dict.fromkeys(rows[row]))
    x = amount("x", "value", title, **({"zero": True, "nice": True} | axis))
    across = {"type": "band", "domain": names}
    y = channel(
        "y", f"{row}:N", title=None, scale=across, axis={"labelLimit": 260 if title else 130, "grid": title is not None}
    )
    color = {name: channel for name, channel in look.items() if name == "color"}
    light = {"opacity": lit()} if dim else {}
    layers = []
    if "baseline" in rows:
        above = 0.36 if "short" in rows else 0.1  # below the row's number, which stands above its value
        top = channel("y", f"{row}:N", title=None, scale=across, bandPosition=above)
        end = channel("y2", row, bandPosition=0.9)
        layers.append(draw("rule", rows, CONTROL, x=with_field(x, "baseline"), y=top, y2=end))
    layers.append(draw("rule", rows, color, light, strokeWidth=2.2, x=with_field(x, "low"), x2="high:Q", y=y))
    layers += [also(chart, x=x, y=y, **color) for chart in more or []]
    if grey is not None and len(grey):
        told = grey.assign(**{name: value for name, value in _ONE_CONTROL.items() if name not in grey})
        for (name, shape), own in told.groupby(list(_ONE_CONTROL), sort=False):  # type: ignore[misc]
            other, tip = own[[row, "value", "shown"]], tips(f"shown:N|{name}")
            layers.append(draw("point", other, _GREY, shape=shape, x=x, y=y, tooltip=tip))
    layers.append(draw("point", rows, point_style(rows), look, light, size=size, x=x, y=y, tooltip=tooltip))
    if "short" in rows:
        layers.append(draw("text", rows, VALUE, light, x=x, y=y, text="short:N"))
    if legend:
        layers.append(names_above(legend, room=_ROOM))
    return finished(layers, 12 + step * len(names))
