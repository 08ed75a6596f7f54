"""Points in a plane with whiskers; those of an untrained model are grey and behind."""

from typing import Any

import pandas as pd

from ._chart import lit
from ._lines import whiskers
from ._marks import Channel, Layer, draw


def points(
    trained: pd.DataFrame,
    untrained: pd.DataFrame,
    at: dict[str, Any],
    look: dict[str, Any],
    *,
    ends: dict[str, tuple[str, str]],
    tooltip: list[Channel],
    least: float = 0.0,
) -> list[Layer]:
    """The layers of a scatter plot.

    Args:
        at: The encodings `x` and `y`.
        look: The encodings `color` and `shape`.
        ends: For `x` and `y`: the two columns that a whisker connects.
        least: Minimum length of a whisker that extends beyond its point.
    """
    grey = {"shape": "cross", "filled": True, "size": 30, "color": "var(--control)", "opacity": 0.65, "clip": True}
    place = [str(channel["shorthand"]).partition(":")[0] for channel in at.values()]
    bars = []
    for axis, (low, high) in ends.items():
        long = trained.loc[trained[high] - trained[low] > least, list(dict.fromkeys(["series", *place, low, high]))]
        color = {"color": look["color"]}
        bars += whiskers(long, at, color, {axis: (low, high)}, strokeWidth=1, opacity=lit(0.5))
    bounds = [column for pair in ends.values() for column in pair]
    marks = trained.drop(columns=[column for column in bounds if column not in place])
    return [
        draw("point", untrained[place], grey, at),
        *bars,
        draw("point", marks, at, look, filled=True, size=32, tooltip=tooltip, opacity=lit(0.75)),
    ]
