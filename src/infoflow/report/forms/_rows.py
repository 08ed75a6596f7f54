"""Charts of rows: a dot with its interval for each compared item, and squares in rows and columns."""

from typing import Any

import pandas as pd

from ._chart import CONTROL, VALUE, amount, bounded, color_if, finished, lit, tips, with_field
from ._lines import ANY, names_above
from ._marks import Channel, Layer, Rows, also, channel, draw, point_style

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
    """Draw each of the `rows`, in order, with `value`, `low` and `high`, and its number if the column `short` exists.

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
        stated = grey.assign(**{name: value for name, value in _ONE_CONTROL.items() if name not in grey})
        for (name, shape), own in stated.groupby(list(_ONE_CONTROL), sort=False):  # type: ignore[misc]
            other, tip = own[[row, "value", "shown"]], tips(f"shown:N|{name}")
            layers.append(draw("point", other, _GREY, shape=shape, x=x, y=y, tooltip=tip))
    layers.append(draw("point", rows, point_style(rows), look, light, size=size, x=x, y=y, tooltip=tooltip))
    if "short" in rows:
        layers.append(draw("text", rows, VALUE, light, x=x, y=y, text="short:N"))
    if legend:
        layers.append(names_above(legend, room=_ROOM))
    return finished(layers, 12 + step * len(names))


def squares(
    base: pd.DataFrame | Layer,
    x: Channel,
    y: Channel,
    strength: str,
    *,
    ends: tuple[float, float] = (0.0, 1.0),
    color: str | Channel = "var(--heat-2)",
    text: str | None = "text:N",
    size: float = 10,
    tooltip: list[Channel] | None = None,
    format: str = "",
    exponent: float = 1.0,
) -> list[Layer]:
    """Draw squares for `base`; opacity follows the field `strength` between `ends`, from nearly blank to full.

    Charts cannot mix CSS variables, so the colour is fixed and only its opacity varies. An `exponent` above 1 separates
    high values better.
    """
    empty, full = ends
    power = {} if exponent == 1 else {"type": "pow", "exponent": exponent}
    scale = {"domain": [empty, full], "range": [0.03, 1], "clamp": True, **power}
    fill, look = ({"color": color}, {}) if isinstance(color, str) else ({}, {"color": color})
    look |= {"tooltip": tooltip} if tooltip else {}
    opacity = channel("opacity", f"{strength}:Q", scale=scale, legend=None)
    marks = draw("rect", base, fill, look, cornerRadius=2, x=x, y=y, opacity=opacity)
    if text is None:
        return [marks]
    part = f"(datum.{strength} - {empty}) / {full - empty or 1.0}"
    ink = color_if(f"{part} > {0.55 ** (1 / exponent):.4g}", "var(--paper)", "var(--ink)")
    words = channel("text", text, **({"format": format} if format else {}))
    return [marks, draw("text", base, fontSize=size, x=x, y=y, text=words, color=ink)]


def signed_squares(
    rows: pd.DataFrame, x: Channel, y: Channel, field: str, ends: tuple[float, float], middle: float = 0.0, **how: Any
) -> list[Layer]:
    """Squares in two colours, for values of `field` below and above `middle`; they are strongest at `ends`."""
    low, high = ends
    value = rows[field].clip(low, high)
    strength = ((value - middle) / (high - middle)).where(value > middle, (middle - value) / (middle - low))
    color = color_if(f"datum.{field} < {middle}", "var(--below)", "var(--above)")
    return squares(rows.assign(strength=strength.round(3)), x, y, "strength", color=color, **how)


def frames(rows: Rows, x: Channel, y: Channel) -> list[Layer]:
    """Frames around squares: a light outline with a dark one inside it, visible on pale and on strong squares."""
    lines = (("paper", 3.5), ("ink", 1.5))
    return [
        draw("rect", rows, filled=False, stroke=f"var(--{name})", strokeWidth=width, x=x, y=y) for name, width in lines
    ]


def cells(
    name: str, field: str, title: str | None = None, order: list | None = None, *, whole: bool = False, **how: Any
) -> Channel:
    """The channel "x" or "y" for squares, in `order` from the left or the top; `how` styles its labels.

    With `whole`, the axis shows all of `order`, even values without a square.
    """
    gap = how.pop("gap", 0.0)
    inner = ({"paddingInner": gap} if gap else {}) | ({"domain": order} if whole else {})
    axis = {"labelAngle": 0, "domain": False, "ticks": False} | how
    scale = {"scale": inner} if inner else {}
    return channel(
        name, f"{field}:O", title=title, axis=axis, **({"sort": order} if order is not None else {}), **scale
    )
