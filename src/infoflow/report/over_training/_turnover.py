"""Whether the heads of a role stay the same ones: overlaps of its sets over training, a small chart for each role."""

import json
from typing import Any

import altair as alt
import pandas as pd

from .._figure import Panel
from .._series import Series
from ..forms._chart import CONTROL, lit, tips
from ..forms._over_time import ROW_NAME
from ..forms._time_axis import TimeAxis, timed
from ._course import CheckpointTables
from ._role_spans import first_seed, with_places

_ROW, _MOST_ROLES = 40, 10
_BASE, _TALL = 0.94, 0.62  # of a row: where 0 is, and how much of it goes up to 1
_LINES = {"jaccard_previous": "before", "jaccard_final": "last"}
_CHANCE = "expected_previous"


def turnover_panels(course: CheckpointTables) -> list[Panel]:
    """A panel for each model, with a row for each role that two heads or more held at once, of its first seed."""
    frame = with_places(first_seed(course["role_turnover"]))
    if frame.empty or not {"role", "size", *_LINES} <= set(frame):
        return []
    panels = []
    for series, own in course.each(frame):
        named = own.assign(role=[_name(*each) for each in zip(own["role"], own["kind"], strict=True)])
        most = named.groupby("role")["size"].max()
        # One head is the same or another one: there is no overlap to draw.
        roles = [str(role) for role in most[most > 1].sort_values(ascending=False, kind="stable").index][:_MOST_ROLES]
        if roles:
            chart = _chart(course.axis, named[named["role"].isin(roles)], series, roles)
            panels.append(Panel(spec=chart, title=f"{series.label}: the same heads?"))
    return panels


def _name(role: Any, kind: Any) -> str:
    return str(role) if str(kind) in ("self", "") else f"{role} ({kind})"


def _chart(axis: TimeAxis, rows: pd.DataFrame, series: Series, roles: list[str]) -> dict[str, Any]:
    rows = rows.assign(row=rows["role"].map(roles.index), series=series.key).sort_values(["row", "update"])
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[0, len(roles)], reverse=True, nice=False))
    at, layers = {"x": axis.channel(), "y": y}, [axis.marker([series.key])]
    if _CHANCE in rows:
        layers.append(
            _line(rows, _CHANCE).mark_line(**CONTROL).encode(**at, detail=alt.Detail("role:N"), opacity=lit(0.8))
        )
    for column, told in _LINES.items():
        dash = [1, 0] if column == "jaccard_previous" else [4, 3]
        base = _line(rows, column)
        line = base.mark_line(color=series.color, strokeWidth=1.6, strokeDash=dash)
        layers.append(line.encode(**at, detail=alt.Detail("role:N"), opacity=lit()))
        tooltip = tips("role:N", "update:Q||,", "size:Q|heads", f"value:Q|overlap with the {told} set|.2f")
        layers.append(base.mark_point(filled=True, size=90, opacity=0).encode(**at, tooltip=tooltip))
    names = alt.Chart(pd.DataFrame({"role": roles, "y": [place + 0.27 for place in range(len(roles))]}))
    layers.append(names.mark_text(**ROW_NAME).encode(x=alt.XValue(2), y=y, text=alt.Text("role:N")))
    return axis.finished(layers, _ROW * len(roles), [series.key])


def _line(rows: pd.DataFrame, column: str) -> alt.Chart:
    """Of an empty set there is no overlap."""
    known = rows[rows["size"] > 0].dropna(subset=column)
    shown = known[["role", "row", "update", "size"]].assign(value=known[column].round(3))
    folded = shown.groupby(["role", "row"], sort=False)[["update", "size", "value"]].agg(list).reset_index()
    chart = alt.Chart(folded).transform_flatten(["update", "size", "value"])
    return timed(
        chart.transform_calculate(
            series=json.dumps(str(rows["series"].iloc[0])), y=f"datum.row + {_BASE} - {_TALL} * datum.value"
        )
    )
