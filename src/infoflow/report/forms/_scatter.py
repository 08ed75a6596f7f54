"""Points in a plane with whiskers, an untrained model's in grey behind them."""

from typing import Any

import altair as alt
import pandas as pd

from ._chart import lit, with_field


def points(
    trained: pd.DataFrame,
    untrained: pd.DataFrame,
    at: dict[str, Any],
    look: dict[str, Any],
    *,
    ends: dict[str, tuple[str, str]],
    tooltip: list[alt.Tooltip],
    least: float = 0.0,
) -> list[alt.Chart]:
    """The layers of the picture.

    Args:
        at: The encodings `x` and `y`.
        look: The encodings `color` and `shape`.
        ends: Of `x` and `y`: the columns between which a whisker goes.
        least: Length from which a whisker reaches beyond its point.
    """
    grey = {"shape": "cross", "filled": True, "size": 30, "color": "var(--control)", "opacity": 0.65, "clip": True}
    place = [str(channel["shorthand"]).partition(":")[0] for channel in at.values()]
    whiskers = []
    for axis, (low, high) in ends.items():
        long = trained.loc[trained[high] - trained[low] > least, list(dict.fromkeys(["series", *place, low, high]))]
        where = {**at, axis: with_field(at[axis], low), f"{axis}2": f"{high}:Q"}
        whiskers.append(alt.Chart(long).mark_rule(strokeWidth=1).encode(**where, color=look["color"], opacity=lit(0.5)))
    bounds = [column for pair in ends.values() for column in pair]
    marks = alt.Chart(trained.drop(columns=[column for column in bounds if column not in place]))
    return [
        alt.Chart(untrained[place]).mark_point(**grey).encode(**at),
        *whiskers,
        marks.mark_point(filled=True, size=32).encode(**at, **look, tooltip=tooltip, opacity=lit(0.75)),
    ]
