"""Squares in rows and columns, of which the page shows one set at a time."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from ..forms._chart import color_if, one_at_a_time, tips
from ..forms._grid import cells, squares

_DRAWN = ("label", "place", "strength", "value", "text", "shown", "set", "grey")
_ROW = 24  # pixels of a row
_ROOM = 26  # pixels of a square that has room for its number


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
    """Rows with `label`, the column `across`, `value`, `text`, `shown`, `set` and, of controls, `grey`.

    Args:
        across: The column whose values go from left to right, as texts, in the order of the rows.
        labels: Names of rows, from top to bottom.
        title: Of the axis.
        told: Name of the value under the pointer.
        strongest: The value of the strongest colour.
        signed: Whether values below 0 have a colour of their own.
    """
    columns = list(dict.fromkeys(rows[across].astype(str)))
    rows = rows.assign(strength=rows["value"].abs(), place=rows[across].astype(str))
    x, y = (
        cells(alt.X, "place", title, columns, whole=True, **_slanted(columns)),
        cells(alt.Y, "label", None, list(labels), whole=True, labelLimit=120),
    )
    color = color_if("datum.value < 0", "var(--below)", "var(--above)") if signed else "var(--heat-2)"
    if "grey" in rows:
        color = color_if("datum.grey", "var(--control)", "var(--heat-2)")
    kept = rows[[name for name in _DRAWN if name in rows]]
    marks = squares(
        alt.Chart(kept),
        x,
        y,
        "strength",
        ends=(0.0, strongest or 1.0),
        color=color,
        size=9.5,
        tooltip=tips("label:N|row", f"place:N|{across}", f"shown:N|{told}"),
    )
    marks[-1] = marks[-1].encode(
        opacity=alt.OpacityValue(0, condition=[{"test": f"width >= {_ROOM * len(columns)}", "value": 1}])
    )
    return one_at_a_time(marks, _ROW * len(labels) + 4)


def _slanted(columns: Sequence[str]) -> dict[str, Any]:
    """Words are set at a slant, so that they do not run into each other; numbers are not."""
    return (
        {} if all(name.isdigit() for name in columns) else {"labelAngle": -40, "labelLimit": 90, "labelAlign": "right"}
    )
