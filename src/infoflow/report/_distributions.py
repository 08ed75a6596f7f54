"""Distributions layer by layer, as ridges: each layer's shape stands on its own line, from the bottom to the top."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ._figure import Figure, Panel
from ._language import Cast, Series
from ._layer_chart import color_of, finished, lit
from ._numbers import number

_METRICS = {"cosine": "cosine of two random words", "euclidean": "Euclidean distance of two random words"}
_HEIGHT = 1.25  # lines that a shape reaches over
_VISIBLE = 0.002  # bins that nowhere hold more are cut off at both ends
_ROUNDING = 1e-9


def distribution_figure(frame: pd.DataFrame, cast: Cast) -> Figure:
    """Cosines and distances of random pairs of words: a panel per model and metric."""
    shapes = pd.concat(
        [_shapes(frame, series, metric) for metric in _METRICS for series in cast.present(frame)], ignore_index=True
    )
    panels = [
        Panel(title=f"{series.label}: {metric}", spec=_ridges(_panel_rows(shapes, series.key, metric), series, metric))
        for metric in _METRICS
        for series in cast.present(shapes[shapes["metric"] == metric])
    ]
    return Figure(
        id="word-distances",
        question="How similar, and how far apart, are two random words?",
        answer=_sentence(shapes, cast),
        panels=panels,
        caption=f"{int(frame['count'].median()):,} random pairs of word occurrences in each layer of each model, the "
        "same pairs in every layer. Every shape is drawn to the same height; cosine panels share one scale across.",
        how_to_read=[
            "Each line is a layer, from the embeddings (0) at the bottom to the top. The shape on it shows how often "
            "two random words have that cosine, or lie that far apart.",
            "The dashed grey shape is a model that was never trained; the dotted one an isotropic Gaussian whose "
            "vectors have the same mean squared length.",
            "A shape that leaves 0 to the right is a space in which all words point the same way. Two humps are two "
            "kinds of words that the layer keeps apart.",
        ],
        method="geometry",
        data=shapes.drop(columns="top"),
        tables=("distance_distribution",),
    )


def _shapes(frame: pd.DataFrame, series: Series, metric: str) -> pd.DataFrame:
    """Mean share over seeds of each bin, for the trained models, the untrained ones and the Gaussian."""
    own = frame[(frame["series"] == series.key) & (frame["metric"] == metric)]
    # Euclidean bins are a power of two wide: those of all seeds and layers nest in the widest.
    width = float((own["bin_high"] - own["bin_low"]).max())
    own = own.assign(place=np.floor(own["bin_low"] / width + _ROUNDING))
    groups = {
        "trained": (own[own["trained"]], "share"),
        "untrained": (own[~own["trained"]], "share"),
        "baseline": (own[own["trained"]], "baseline"),
    }
    parts = []
    for group, (rows, column) in groups.items():
        sums: Any = rows.groupby(["layer", "place"])[column].sum() / max(rows["seed"].nunique(), 1)
        parts.append(sums.rename("share").reset_index().assign(group=group))
    shapes = pd.concat([part for part in parts if len(part)], ignore_index=True)
    highest = shapes.groupby(["group", "layer"])["share"].transform("max")
    return shapes.assign(
        series=series.key,
        metric=metric,
        low=shapes["place"] * width,
        middle=(shapes["place"] + 0.5) * width,
        high=(shapes["place"] + 1) * width,
        top=shapes["layer"] + _HEIGHT * shapes["share"] / highest,
    ).drop(columns="place")


def _panel_rows(shapes: pd.DataFrame, key: str, metric: str) -> pd.DataFrame:
    """One panel's rows, without the bins at both ends that hold nothing; cosines of all models over one range."""
    compared = shapes[shapes["metric"] == metric]
    own = compared[compared["series"] == key]
    seen = compared if metric == "cosine" else own
    seen = seen[seen["share"] > _VISIBLE]
    # One empty bin on either side, so that shapes come down to their line.
    return own[(own["high"] > seen["low"].min() - _ROUNDING) & (own["low"] < seen["high"].max() + _ROUNDING)]


def _ridges(rows: pd.DataFrame, series: Series, metric: str) -> dict[str, Any]:
    rows = rows.sort_values(["layer", "middle"], ascending=[False, True])
    group = dict(iter(rows.groupby("group")))
    trained, at = alt.Chart(group["trained"]), _axes(rows, metric)
    floor = at["y"].copy()
    floor.shorthand = "layer:Q"
    area = trained.mark_area(interpolate="monotone").encode(
        x=at["x"], y=floor, y2="top:Q", detail="layer:O", color=color_of([series]), opacity=lit(0.35)
    )
    edge = trained.mark_line(interpolate="monotone", strokeWidth=1.5).encode(
        **at, detail="layer:O", color=color_of([series]), opacity=lit()
    )
    touch = trained.mark_point(size=120, filled=True, opacity=0).encode(
        **at,
        tooltip=[
            alt.Tooltip("layer:Q"),
            alt.Tooltip("middle:Q", title=metric, format=".3g"),
            alt.Tooltip("share:Q", title="share of pairs", format=".3f"),
        ],
    )
    controls = [
        alt.Chart(group[name])
        .mark_line(interpolate="monotone", color="var(--control)", strokeDash=dash, strokeWidth=1.3)
        .encode(**at, detail="layer:O", opacity=lit(0.9, 0.5))
        for name, dash in (("untrained", [4, 3]), ("baseline", [1, 3]))
        if name in group
    ]
    return finished(alt.layer(area, *controls, edge, touch), 70 + 32 * rows["layer"].nunique())


def _axes(rows: pd.DataFrame, metric: str) -> dict[str, Any]:
    layers = sorted(int(layer) for layer in rows["layer"].unique())
    across = alt.Scale(domain=[float(rows["middle"].min()), float(rows["middle"].max())], nice=False, zero=False)
    upward = alt.Scale(domain=[layers[0] - 0.1, layers[-1] + _HEIGHT + 0.05], nice=False, zero=False)
    return {
        "x": alt.X("middle:Q", title=_METRICS[metric], scale=across, axis=alt.Axis(tickCount=5)),
        "y": alt.Y("top:Q", title="layer", scale=upward, axis=alt.Axis(values=layers, format="d")),
    }


def _sentence(shapes: pd.DataFrame, cast: Cast) -> list[str]:
    """The middle half of the cosines at the bottom and at the top, model by model."""
    trained = shapes[(shapes["group"] == "trained") & (shapes["metric"] == "cosine")]
    parts = []
    for series in cast.present(trained):
        layers = dict(iter(trained[trained["series"] == series.key].groupby("layer")))
        first, last = min(layers), max(layers)
        parts.append(
            f"{series.label} from {_middle_half(layers[first])} at layer {first}, "
            f"and from {_middle_half(layers[last])} at layer {last}"
        )
    return [f"The middle half of all pairs have cosines, in {'; in '.join(parts)}."] if parts else []


def _middle_half(rows: pd.DataFrame) -> str:
    """`0.1 to 0.3`: first and third quartile, interpolated within their bins."""
    rows = rows.sort_values("low")
    edges = np.concatenate([rows["low"].iloc[:1], rows["high"]])
    shares = np.concatenate([[0.0], rows["share"].cumsum()])
    low, high = np.interp([0.25 * shares[-1], 0.75 * shares[-1]], shares, edges)
    return f"{number(low, 2)} to {number(high, 2)}"
