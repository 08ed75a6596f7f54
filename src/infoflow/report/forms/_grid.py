"""Squares in rows and columns: the stronger the colour, the more; with numbers where there is room."""

from typing import Any

import altair as alt

from ._chart import color_if


def squares(
    base: alt.Chart,
    x: alt.X,
    y: alt.Y,
    strength: str,
    *,
    ends: tuple[float, float] = (0.0, 1.0),
    color: Any = "var(--heat-2)",
    text: str | None = "text:N",
    size: float = 10,
    tooltip: list[alt.Tooltip] | None = None,
    format: str = "",
    exponent: float = 1.0,
) -> list[alt.Chart]:
    """Of the rows of `base`, whose field `strength` goes from the first of `ends`, nearly blank, to the second.

    Charts cannot mix CSS variables, so that the colour is one, more or less opaque. Above 1, `exponent` tells the
    strong ones further apart.
    """
    empty, full = ends
    power = {} if exponent == 1 else {"type": "pow", "exponent": exponent}
    scale = alt.Scale(domain=[empty, full], range=[0.03, 1], clamp=True, **power)
    fill, look = ({"color": color}, {}) if isinstance(color, str) else ({}, {"color": color})
    look |= {"tooltip": tooltip} if tooltip else {}
    opacity = alt.Opacity(f"{strength}:Q", scale=scale, legend=None)
    marks = base.mark_rect(cornerRadius=2, **fill).encode(x=x, y=y, opacity=opacity, **look)
    if text is None:
        return [marks]
    part = f"(datum.{strength} - {empty}) / {full - empty or 1.0}"
    ink = color_if(f"{part} > {0.55 ** (1 / exponent):.4g}", "var(--paper)", "var(--ink)")
    words = alt.Text(text, **({"format": format} if format else {}))
    return [marks, base.mark_text(fontSize=size).encode(x=x, y=y, text=words, color=ink)]


def cells(
    channel: Any, field: str, title: str | None = None, order: list | None = None, *, whole: bool = False, **how: Any
) -> Any:
    """An axis of squares; `order` from the left or the top, all of it if `whole`, even without a square; `how`: of its
    labels."""
    gap = how.pop("gap", 0.0)
    inner = ({"paddingInner": gap} if gap else {}) | ({"domain": order} if whole else {})
    axis = alt.Axis(**({"labelAngle": 0, "domain": False, "ticks": False} | how))
    scale = {"scale": alt.Scale(**inner)} if inner else {}
    return channel(f"{field}:O", title=title, axis=axis, **({"sort": order} if order is not None else {}), **scale)
