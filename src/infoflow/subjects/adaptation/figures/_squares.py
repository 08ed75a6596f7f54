"""Square charts in rows and columns; the page shows one set at a time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from infoflow.report._figure import Panel
from infoflow.report._series import Series
from infoflow.report.forms._chart import color_if, one_at_a_time, opacity_if, tips
from infoflow.report.forms._grid import cells, squares
from infoflow.report.forms._marks import also

_DRAWN = ("label", "place", "strength", "value", "text", "shown", "set", "grey")
_ROW = 24  # pixels per row
_ROOM = 26  # pixels of a square that fits its number


def square_chart(
    rows: pd.DataFrame,
    *,
    across: str,
    labels: Sequence[str],
    title: str,
    told: str,
    strongest: float,
    signed: bool = False,
) -> dict[str, Any]:
    """Draw rows with `label`, the column `across`, `value`, `text`, `shown`, `set` and, for controls, `grey`.

    Args:
        across: The column shown from left to right, as texts, in row order.
        labels: Row names from top to bottom.
        title: Axis title.
        told: Name of the value in the tooltip.
        strongest: The value with the strongest colour.
        signed: Whether negative values have their own colour.
    """
    columns = list(dict.fromkeys(rows[across].astype(str)))
    rows = rows.assign(strength=rows["value"].abs(), place=rows[across].astype(str))
    x, y = (
        cells("x", "place", title, columns, whole=True, **_slanted(columns)),
        cells("y", "label", None, list(labels), whole=True, labelLimit=120),
    )
    color = color_if("datum.value < 0", "var(--below)", "var(--above)") if signed else "var(--heat-2)"
    if "grey" in rows:
        color = color_if("datum.grey", "var(--control)", "var(--heat-2)")
    kept = rows[[name for name in _DRAWN if name in rows]]
    marks = squares(
        kept,
        x,
        y,
        "strength",
        ends=(0.0, strongest or 1.0),
        color=color,
        size=9.5,
        tooltip=tips("label:N|row", f"place:N|{across}", f"shown:N|{told}"),
    )
    marks[-1] = also(marks[-1], opacity=opacity_if(f"width >= {_ROOM * len(columns)}", 1, 0))
    return one_at_a_time(marks, _ROW * len(labels) + 4)


def chosen_squares(
    rows: pd.DataFrame,
    series: Sequence[Series],
    by: str,
    sets: Sequence[str] | Mapping[str, str],
    labels: Sequence[str] | Callable[[pd.DataFrame], Sequence[str]],
    **how: Any,
) -> dict[str, Any]:
    """Parts of a figure with one chart per line, of which the reader sees one set at a time.

    Args:
        by: The column that tells the set of a row.
        sets: Its values in order, or each with the name that the reader sees.
        labels: Row names from top to bottom, or a function from a line's rows to them.
        how: See `square_chart`; without `strongest`, the value farthest from 0 has the strongest colour.
    """
    names = sets if isinstance(sets, Mapping) else {name: name for name in sets}
    rows = rows.assign(set=rows[by].map(list(names).index))
    how = {"strongest": float(rows["value"].abs().max()), **how}
    panels = []
    for one in series:
        own = rows[rows["series"] == one.key]
        chart = square_chart(own, labels=labels(own) if callable(labels) else labels, **how)
        panels.append(Panel(spec=chart, title=one.label))
    return {"panels": panels, "payload": {"sets": list(names.values())}}


CHOSEN: dict[str, Any] = {"template": "evaluated.html.jinja", "payload": {"layout": "wide", "apart": True}}
"""What figures of `chosen_squares` declare."""


def _slanted(columns: Sequence[str]) -> dict[str, Any]:
    """Slant words so that they do not overlap; numbers stay level."""
    return (
        {} if all(name.isdigit() for name in columns) else {"labelAngle": -40, "labelLimit": 90, "labelAlign": "right"}
    )
