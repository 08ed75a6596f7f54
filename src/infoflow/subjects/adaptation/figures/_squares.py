"""Square charts in rows and columns; the page shows one set at a time."""

from collections.abc import Sequence
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


def square_panels(rows: pd.DataFrame, series: Sequence[Series], **how: Any) -> list[Panel]:
    """One chart per line."""
    return [Panel(spec=square_chart(rows[rows["series"] == one.key], **how), title=one.label) for one in series]


def chosen_of(sets: Sequence[str]) -> dict[str, Any]:
    """Figure payload that lets the reader choose one of these sets."""
    return {"template": "evaluated.html.jinja", "payload": {"sets": list(sets), "layout": "wide", "apart": True}}


def _slanted(columns: Sequence[str]) -> dict[str, Any]:
    """Slant words so that they do not overlap; numbers stay level."""
    return (
        {} if all(name.isdigit() for name in columns) else {"labelAngle": -40, "labelLimit": 90, "labelAlign": "right"}
    )
