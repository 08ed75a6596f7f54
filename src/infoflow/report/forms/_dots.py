"""Values on their intervals, a row each, beside a reference: what is compared is named at the left."""

from typing import Any

import altair as alt
import pandas as pd

from ._chart import CONTROL, VALUE, amount, bounded, finished, lit, tips, with_field
from ._hollow import point_style
from ._lines import ANY
from ._names import names_above

_GREY: dict[str, Any] = {"filled": True, "size": 55, "color": "var(--control)", "opacity": 1}
_ROOM = 130  # pixels beside the names of rows, where panels are narrow
_ONE_CONTROL = {"control": "control", "shape": "cross"}


def interval_dots(
    rows: pd.DataFrame,
    look: dict[str, Any],
    *,
    row: str = "label",
    title: str | None = None,
    bounds: tuple[float, float] = ANY,
    tooltip: list[alt.Tooltip] | None = None,
    size: int = 70,
    more: list[alt.Chart] | None = None,
    step: int = 40,
    dim: bool = True,
    grey: pd.DataFrame | None = None,
    legend: list[tuple[str, str, str]] | None = None,
    **axis: Any,
) -> dict[str, Any]:
    """A row for each of `rows`, in their order, with `value`, `low`, `high`, and its number where they have `short`.

    A `baseline` of each row is a dashed grey tick.

    Args:
        look: The encodings `color` and `shape`, as far as there are.
        more: Further marks on the same rows.
        dim: Whether rows dim while another line is highlighted.
        grey: A control's `value`, and its number as text, `shown`, in some of the rows: a grey cross. Where there are
            several, what each is called, `control`, and its `shape`.
        legend: What marks are called, above the picture (see `names_above`).
        axis: How the axis of values is (see `amount`).
    """
    rows = bounded(rows, bounds)
    names = list(dict.fromkeys(rows[row]))
    x = alt.X(**amount("value", title, **({"zero": True, "nice": True} | axis)))
    across = alt.Scale(type="band", domain=names)
    y = alt.Y(
        f"{row}:N", title=None, scale=across, axis=alt.Axis(labelLimit=260 if title else 130, grid=title is not None)
    )
    color = {name: channel for name, channel in look.items() if name == "color"}
    light = {"opacity": lit()} if dim else {}
    base = alt.Chart(rows)
    layers = []
    if "baseline" in rows:
        above = 0.36 if "short" in rows else 0.1  # below the row's number, which stands over its value
        top, end = alt.Y(f"{row}:N", title=None, scale=across, bandPosition=above), alt.Y2(row, bandPosition=0.9)
        layers.append(base.mark_rule(**CONTROL).encode(x=with_field(x, "baseline"), y=top, y2=end))
    layers.append(
        base.mark_rule(strokeWidth=2.2).encode(x=with_field(x, "low"), x2=alt.X2("high:Q"), y=y, **color, **light)
    )
    layers += [chart.encode(x=x, y=y, **color) for chart in more or []]
    if grey is not None and len(grey):
        told = grey.assign(**{name: value for name, value in _ONE_CONTROL.items() if name not in grey})
        for (name, shape), own in told.groupby(list(_ONE_CONTROL), sort=False):  # type: ignore[misc]
            mark = alt.Chart(own[[row, "value", "shown"]]).mark_point(shape=shape, **_GREY)
            layers.append(mark.encode(x=x, y=y, tooltip=tips(f"shown:N|{name}")))
    marks = base.mark_point(size=size, **point_style(rows))
    layers.append(marks.encode(x=x, y=y, **look, **light, **({"tooltip": tooltip} if tooltip else {})))
    if "short" in rows:
        layers.append(base.mark_text(**VALUE).encode(x=x, y=y, text=alt.Text("short:N"), **light))
    if legend:
        layers.append(names_above(legend, room=_ROOM))
    return finished(layers, 12 + step * len(names))
