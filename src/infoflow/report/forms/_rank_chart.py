"""A value by layer with a line per frequency bin, from the most frequent tokens (pale) to the rarest (strong)."""

from typing import Any

import altair as alt
import pandas as pd

from .._theme import RANK_STEPS
from ._conditional import color_if, opacity_if
from ._hollow import point_style
from ._layer_chart import CONTROL, HEIGHT, finished, lit, spread

_LABEL_GAP = 12.5  # pixels between direct labels
_DOMAIN_MARGIN = 1.06


def rank_chart(
    table: pd.DataFrame, *, y_title: str, x_title: str, control_name: str, top: float, transitions: bool = False
) -> dict[str, Any]:
    """A Vega-Lite specification for one model's rows of `rank_curves`, as wide as its container.

    `top` is the largest value of all panels that are compared. With `transitions` the axis reads 0→1, 1→2, …
    """
    layers = sorted(int(layer) for layer in table["layer"].unique())
    y_scale = alt.Scale(domain=[0, _DOMAIN_MARGIN * top], nice=False)
    x_scale = alt.Scale(domain=[layers[0] - 0.15, max(layers[-1], layers[0] + 1) + 0.05], nice=False, zero=False)
    label = "datum.value + '→' + (datum.value + 1)" if transitions else "format(datum.value, 'd')"
    x = alt.X("layer:Q", title=x_title, scale=x_scale, axis=alt.Axis(values=layers, labelExpr=label, labelOverlap=True))
    axis = alt.Axis(tickCount=5)
    y = {name: alt.Y(f"{name}:Q", title=y_title, scale=y_scale, axis=axis) for name in ("value", "low")}
    bins, control = table[table["group"] == "bin"], table[table["group"] == "control"]
    color = _color_of(bins)
    base = alt.Chart(bins)
    band = base.mark_area().encode(x=x, y=y["low"], y2="high:Q", color=color, opacity=lit(0.15))
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y["value"], color=color, opacity=lit())
    points = base.mark_point(size=22, **point_style(bins)).encode(x=x, y=y["value"], color=color, opacity=lit())
    tooltip = [
        alt.Tooltip("ranks:N", title="frequency rank"),
        alt.Tooltip("layer:Q", title="layer"),
        alt.Tooltip("shown:N", title="value"),
        alt.Tooltip("count:Q", title="occurrences", format=","),
    ]
    touch = base.mark_point(size=120, filled=True, opacity=0).encode(x=x, y=y["value"], tooltip=tooltip)
    drawn = [_hovered_layer(layers, x), band, *_control(control, x, y["value"]), line, points, touch]
    return finished(alt.layer(*drawn, _labels(bins, control, control_name, x, y_scale)), HEIGHT)


def _color_of(bins: pd.DataFrame) -> alt.Color:
    """Steps of one ramp, the last for the rarest bin."""
    ranks = list(dict.fromkeys(bins.sort_values("rank_low")["ranks"]))
    steps = [round(index * (RANK_STEPS - 1) / max(len(ranks) - 1, 1)) for index in range(len(ranks))]
    colors = [f"var(--rank-{step})" for step in steps]
    return alt.Color("ranks:N", scale=alt.Scale(domain=ranks, range=colors), legend=None)


def _hovered_layer(layers: list[int], x: alt.X) -> alt.Chart:
    """A line at the layer that is hovered somewhere in the section."""
    there = opacity_if("datum.layer === at_layer", 0.7, 0)
    rule = alt.Chart(pd.DataFrame({"layer": layers})).mark_rule(color="var(--soft)", strokeWidth=1)
    return rule.encode(x=x, opacity=there)


def _control(control: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    if control.empty:
        return []
    tooltip = [alt.Tooltip("ranks:N", title="control"), alt.Tooltip("layer:Q"), alt.Tooltip("shown:N", title="value")]
    return [alt.Chart(control).mark_line(**CONTROL).encode(x=x, y=y, tooltip=tooltip, opacity=lit(1.0, 0.5))]


def _labels(bins: pd.DataFrame, control: pd.DataFrame, control_name: str, x: alt.X, scale: alt.Scale) -> alt.Chart:
    """The ranks of each line at its right end, moved apart where they would overlap."""
    top = float(scale.to_dict()["domain"][1])
    last = int(bins["layer"].max())
    rows = bins[bins["layer"] == last].sort_values("rank_low")
    frame = rows[["ranks", "value", "series"]].rename(columns={"ranks": "text", "value": "at"}).assign(grey=False)
    end = control[control["layer"] == last]
    if len(end):
        grey = {"text": control_name, "at": float(end["value"].iloc[0]), "series": rows["series"].iloc[0], "grey": True}
        frame = pd.concat([frame, pd.DataFrame([grey])], ignore_index=True)
    frame["at"] = spread(list(frame["at"]), _LABEL_GAP / HEIGHT * top, top)
    frame = frame.assign(layer=last, ranks=frame["text"])
    color = color_if("datum.grey", "var(--soft)", _color_of(bins))
    text = alt.Chart(frame).mark_text(align="left", dx=7, fontSize=10.5, limit=90)
    return text.encode(x=x, y=alt.Y("at:Q", scale=scale), text="text:N", color=color, opacity=lit(1.0, 0.25))
