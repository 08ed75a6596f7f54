"""Dendrogram of objectives from average distances."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._series import Series
from infoflow.report.forms._chart import NAME, amount, color_of, finished, lit, shape_of, tips
from infoflow.report.forms._lines import level
from infoflow.report.forms._marks import channel, draw

_STEP = 20  # pixels between leaves


def joined(matrix_OO: np.ndarray) -> np.ndarray:
    """Average linkage (UPGMA): rows are merges (one, other, height, size), as in scipy's `linkage`."""
    from scipy.cluster.hierarchy import linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    condensed = squareform(matrix_OO, checks=False)
    return optimal_leaf_ordering(linkage(condensed, method="average"), condensed)


def agreement(matrix_OO: np.ndarray, merges: np.ndarray) -> float:
    """Cophenetic correlation of merge heights with distances; NaN if all are equal."""
    from scipy.cluster.hierarchy import cophenet
    from scipy.spatial.distance import squareform

    given, heights = squareform(matrix_OO, checks=False), cophenet(merges)
    if np.ptp(given) == 0 or np.ptp(heights) == 0:
        return float("nan")
    return float(np.corrcoef(given, heights)[0, 1])


def tree_chart(
    matrix_OO: np.ndarray, series: list[Series], families: list[str], title: str, floor: float | None
) -> dict[str, Any]:
    """Leaves at the left, in merge order; `floor`: the distance between two seeds of one objective."""
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
    x = amount("x", "x", title, (0, float(merges[:, 2].max()) * 1.04 or 1.0))
    y = channel("y", "y:Q", axis=None, scale={"domain": [num - 0.5, -0.5], "nice": False, "zero": False})
    at, to, tooltip = {"x": x, "y": y}, {"x2": "to_x:Q", "y2": "to_y:Q"}, tips("label:N|objective")
    color, marks = color_of(series), {"filled": True, "size": 60, "opacity": lit(), "shape": shape_of(series)}
    name = {**NAME, "align": "right", "baseline": "middle", "dx": -9}
    layers = [] if floor is None else [level(floor, x=x)]
    layers += [
        draw("rule", lines, at, to, strokeWidth=1.6, color=channel("color", "color:N", scale=None)),
        draw("point", leaves, at, marks, color=color, tooltip=tooltip),
        draw("text", leaves, at, name, text="label:N", color=color, opacity=lit(1.0, 0.2)),
    ]
    return finished(layers, 30 + _STEP * num)


def _lines(merges: np.ndarray, order: list[int], colors: list[str], families: list[str]) -> pd.DataFrame:
    """Two lines per merge and one across; in a family's hue if all leaves below belong to it, otherwise grey."""
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
