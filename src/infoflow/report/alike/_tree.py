"""Objectives joined step by step: a dendrogram of average distances."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._series import Series
from ..forms._chart import CONTROL, NAME, amount, color_of, finished, lit, shape_of, tips

_STEP = 20  # pixels between leaves


def joined(matrix_OO: np.ndarray) -> np.ndarray:
    """Average linkage (UPGMA): rows are merges (one, other, height, size), as scipy's `linkage` gives them."""
    from scipy.cluster.hierarchy import linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    condensed = squareform(matrix_OO, checks=False)
    return optimal_leaf_ordering(linkage(condensed, method="average"), condensed)


def agreement(matrix_OO: np.ndarray, merges: np.ndarray) -> float:
    """Cophenetic correlation: of the heights at which two are joined with their distances; NaN where all are equal."""
    from scipy.cluster.hierarchy import cophenet
    from scipy.spatial.distance import squareform

    given, heights = squareform(matrix_OO, checks=False), cophenet(merges)
    if np.ptp(given) == 0 or np.ptp(heights) == 0:
        return float("nan")
    return float(np.corrcoef(given, heights)[0, 1])


def tree_chart(
    matrix_OO: np.ndarray, series: list[Series], families: list[str], title: str, floor: float | None
) -> dict[str, Any]:
    """Leaves at the left, in the order in which they join; `floor`: how far two seeds of one objective are apart."""
    from scipy.cluster.hierarchy import leaves_list

    merges = joined(matrix_OO)
    order = leaves_list(merges).tolist()
    lines = _lines(merges, order, [one.color for one in series], families)
    leaves = pd.DataFrame(
        [
            {"x": 0.0, "y": float(place), "series": series[i].key, "label": series[i].label}
            for place, i in enumerate(order)
        ]
    )
    num = len(order)
    x = alt.X(**amount("x", title, (0, float(merges[:, 2].max()) * 1.04 or 1.0)))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[num - 0.5, -0.5], nice=False, zero=False))
    layers = []
    if floor is not None:
        layers.append(alt.Chart(pd.DataFrame([{"x": floor}])).mark_rule(**CONTROL).encode(x=x))
    rules = alt.Chart(lines).mark_rule(strokeWidth=1.6)
    layers.append(
        rules.encode(x=x, y=y, x2=alt.X2("to_x:Q"), y2=alt.Y2("to_y:Q"), color=alt.Color("color:N", scale=None))
    )
    marks = alt.Chart(leaves).mark_point(filled=True, size=60, opacity=1)
    look = {"color": color_of(series), "shape": shape_of(series)}
    layers.append(marks.encode(x=x, y=y, **look, opacity=lit(), tooltip=tips("label:N|objective")))
    # Names as marks, since an axis leaves out every second one; the picture makes room for them.
    texts = alt.Chart(leaves).mark_text(align="right", baseline="middle", dx=-9, **NAME)
    layers.append(texts.encode(x=x, y=y, text=alt.Text("label:N"), color=look["color"], opacity=lit(1.0, 0.2)))
    return finished(layers, 30 + _STEP * num)


def _lines(merges: np.ndarray, order: list[int], colors: list[str], families: list[str]) -> pd.DataFrame:
    """Two lines to each merge and one across; in the hue of a family where all below are of one, else grey."""
    num = len(order)
    at = {leaf: float(place) for place, leaf in enumerate(order)}
    height, members = dict.fromkeys(range(num), 0.0), {leaf: [leaf] for leaf in range(num)}
    rows = []
    for step, (one, other, up, _) in enumerate(merges.tolist()):
        ends = [int(one), int(other)]
        node = num + step
        members[node] = [leaf for end in ends for leaf in members[end]]
        for end in ends:
            row = {"x": height[end], "to_x": up, "y": at[end], "to_y": at[end]}
            rows.append(row | {"color": _color(members[end], colors, families)})
        color = _color(members[node], colors, families)
        rows.append({"x": up, "to_x": up, "y": at[ends[0]], "to_y": at[ends[1]], "color": color})
        at[node], height[node] = (at[ends[0]] + at[ends[1]]) / 2, up
    return pd.DataFrame(rows)


def _color(leaves: list[int], colors: list[str], families: list[str]) -> str:
    found = {families[leaf] for leaf in leaves}
    return colors[leaves[0]] if len(found) == 1 and found != {""} else "var(--control)"
