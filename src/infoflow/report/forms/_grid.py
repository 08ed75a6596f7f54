"""Squares in rows and columns: stronger colours mean larger values; numbers appear where they fit."""

from typing import Any

import pandas as pd

from ._chart import color_if
from ._marks import Channel, Layer, Rows, channel, draw


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


def frames(rows: Rows, x: Channel, y: Channel) -> list[Layer]:
    """A light outline with a dark one inside, visible on pale and on strong squares."""
    lines = (("paper", 3.5), ("ink", 1.5))
    return [
        draw("rect", rows, filled=False, stroke=f"var(--{name})", strokeWidth=width, x=x, y=y) for name, width in lines
    ]


def cells(
    name: str, field: str, title: str | None = None, order: list | None = None, *, whole: bool = False, **how: Any
) -> Channel:
    """The channel "x" or "y" of squares, in `order` from the left or the top; `how` styles its labels.

    With `whole`, the axis shows all of `order`, even values without a square.
    """
    gap = how.pop("gap", 0.0)
    inner = ({"paddingInner": gap} if gap else {}) | ({"domain": order} if whole else {})
    axis = {"labelAngle": 0, "domain": False, "ticks": False} | how
    scale = {"scale": inner} if inner else {}
    return channel(
        name, f"{field}:O", title=title, axis=axis, **({"sort": order} if order is not None else {}), **scale
    )
