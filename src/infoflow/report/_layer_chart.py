"""The chart that most figures are: a value by layer, one line per objective or model, bands, controls in dashed grey."""

import math
from typing import Any

import altair as alt
import pandas as pd

from ._language import Series
from ._theme import vega_config

HEIGHT = 270
_LABEL_GAP = 14  # pixels between direct labels
_CONTROL_DASH = [4, 3]
_BASELINE_DASH = [1, 3]


def layer_chart(
    table: pd.DataFrame,
    series: list[Series],
    *,
    y_title: str,
    baseline_name: str,
    x_title: str = "layer (0 = embeddings)",
    transitions: bool = False,
    y_range: tuple[float, float] | None = None,
    height: int = HEIGHT,
) -> dict[str, Any]:
    """A Vega-Lite specification for `curves(...)`.

    The measure's baseline is drawn where it does not squash the curves; else an arrow at the edge names its value.
    With `transitions` the axis reads 0→1, 1→2, …; `y_range` gives panels that are compared the same scale.
    """
    alt.data_transformers.disable_max_rows()
    table = table.assign(style=table["series"])
    low, high, baseline_fits = _domain(table)
    if y_range is not None:
        low, high = y_range
        baseline_fits = bool(table.loc[table["group"] == "baseline", "value"].between(low, high).all())
    scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    x = alt.X("layer:Q", title=x_title, axis=_layer_axis(table, transitions), scale=_layer_scale(table))
    y = alt.Y("value:Q", title=y_title, scale=scale, axis=alt.Axis(tickCount=6))
    trained = table[table["group"] == "trained"]
    untrained = table[table["group"] == "untrained"]
    baseline = table[table["group"] == "baseline"]
    layers = [_band(untrained, x, y, "var(--control)", 0.10), *_lines(untrained, x, y, _CONTROL_DASH)]
    if baseline_fits:
        layers += _lines(baseline, x, y, _BASELINE_DASH)
    layers += _series_layers(trained, series, x, y)
    layers.append(_direct_labels(table, series, x, low, high, height, baseline_name if baseline_fits else ""))
    if len(baseline) and not baseline_fits:
        layers.append(_edge_note(baseline, baseline_name, low, height))
    chart = alt.layer(*[layer for layer in layers if layer is not None]).add_params(
        alt.param(name="highlight", value="")
    )
    spec = chart.properties(width="container", height=height).to_dict()
    spec["config"] = vega_config()
    labels = [s.label for s in series] + ["untrained"] * bool(len(untrained)) + [baseline_name] * baseline_fits
    spec["padding"] = {"left": 4, "top": 22, "bottom": 4, "right": 14 + round(6.2 * max(map(len, labels), default=0))}
    return spec


def lit(opacity: float = 1.0, dimmed: float = 0.12) -> Any:
    """Opacity of a mark: dimmed while another line is highlighted."""
    test = "highlight === '' || datum.series === highlight"
    return alt.when(test).then(alt.value(opacity)).otherwise(alt.value(opacity * dimmed))


def color_scale(series: list[Series]) -> alt.Scale:
    return alt.Scale(domain=[s.key for s in series], range=[s.color for s in series])


def dash_scale(series: list[Series]) -> alt.Scale:
    return alt.Scale(domain=[s.key for s in series], range=[list(s.dash) for s in series])


def shape_scale(series: list[Series]) -> alt.Scale:
    return alt.Scale(domain=[s.key for s in series], range=[s.shape for s in series])


def spread(positions: list[float], gap: float, low: float, high: float) -> list[float]:
    """The positions moved apart to at least `gap`, in their order, within [low, high] where they fit."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = list(positions)
    for previous, current in zip(order, order[1:], strict=False):
        placed[current] = max(placed[current], placed[previous] + gap)
    excess = (placed[order[-1]] - high) if order else 0
    if excess > 0:
        placed[order[-1]] = high
        for current, following in reversed(list(zip(order, order[1:], strict=False))):
            placed[current] = min(placed[current], placed[following] - gap)
    return [max(value, low) if len(positions) == 1 else value for value in placed]


def _series_layers(trained: pd.DataFrame, series: list[Series], x: alt.X, y: alt.Y) -> list:
    if trained.empty:
        return []
    base = alt.Chart(trained)
    color = alt.Color("series:N", scale=color_scale(series), legend=None)
    band = _interval(trained, x, y).encode(color=color, opacity=lit(0.18))
    line = base.mark_line(strokeWidth=2.2).encode(
        x=x,
        y=y,
        color=color,
        strokeDash=alt.StrokeDash("series:N", scale=dash_scale(series), legend=None),
        opacity=lit(),
    )
    tooltip = [
        alt.Tooltip("series:N", title="model"),
        alt.Tooltip("layer:Q", title="layer"),
        alt.Tooltip("shown:N", title="value"),
        alt.Tooltip("count:Q", title="occurrences", format=","),
    ]
    shape = alt.Shape("series:N", scale=shape_scale(series), legend=None)
    points = base.mark_point(size=42, filled=True, opacity=1).encode(x=x, y=y, color=color, shape=shape, opacity=lit())
    touch = base.mark_point(size=500, filled=True, opacity=0).encode(x=x, y=y, tooltip=tooltip)
    pairs = [s for s in series if s.second_color]
    second = [_second_color(trained, pairs, x, y)] if pairs else []
    return [band, line, *second, points, touch]


def _second_color(trained: pd.DataFrame, pairs: list[Series], x: alt.X, y: alt.Y) -> alt.Chart:
    """Dashes in the second model's colour over the line in the first one's."""
    rows = trained[trained["series"].isin([s.key for s in pairs])]
    colors = [s.second_color for s in pairs]
    scale = alt.Scale(domain=[s.key for s in pairs], range=colors)
    return (
        alt.Chart(rows)
        .mark_line(strokeWidth=2.2, strokeDash=[7, 7])
        .encode(x=x, y=y, stroke=alt.Stroke("style:N", scale=scale, legend=None), opacity=lit())
    )


def _interval(rows: pd.DataFrame, x: alt.X, y: alt.Y) -> alt.Chart:
    return (
        alt.Chart(rows.dropna(subset=["low", "high"]))
        .mark_area()
        .encode(x=x, y=alt.Y("low:Q", title=y["title"], scale=y["scale"]), y2="high:Q")
    )


def _band(rows: pd.DataFrame, x: alt.X, y: alt.Y, color: str, opacity: float) -> alt.Chart | None:
    if rows.empty:
        return None
    return _interval(rows, x, y).encode(color=alt.value(color), detail="series:N", opacity=lit(opacity))


def _lines(rows: pd.DataFrame, x: alt.X, y: alt.Y, dash: list[int]) -> list:
    if rows.empty:
        return []
    mark = alt.Chart(rows).mark_line(color="var(--control)", strokeWidth=1.6, strokeDash=dash)
    tooltip = [alt.Tooltip("group:N", title="control"), alt.Tooltip("layer:Q"), alt.Tooltip("shown:N", title="value")]
    return [mark.encode(x=x, y=y, detail="series:N", tooltip=tooltip, opacity=lit(1.0, 0.5))]


def _direct_labels(
    table: pd.DataFrame, series: list[Series], x: alt.X, low: float, high: float, height: int, baseline: str
) -> alt.Chart:
    """Names at the right ends of the lines, moved apart where they would overlap."""
    names = {s.key: s.label for s in series}
    ends = []
    for key, rows in table[table["group"] == "trained"].groupby("series", sort=False):
        last = rows.loc[rows["layer"].idxmax()]
        ends.append({"series": key, "text": names[key], "layer": last["layer"], "at": last["value"], "grey": False})
    for group, text in (("untrained", "untrained"), ("baseline", baseline)):
        rows = table[table["group"] == group]
        if len(rows) and text:
            last = rows[rows["layer"] == rows["layer"].max()]
            ends.append(
                {"series": "", "text": text, "layer": last["layer"].iloc[0], "at": last["value"].mean(), "grey": True}
            )
    frame = pd.DataFrame(ends, columns=["series", "text", "layer", "at", "grey"])
    frame["layer"] = frame["layer"].max()
    frame["at"] = spread(list(frame["at"]), _LABEL_GAP / height * (high - low), low, high)
    color = (
        alt.when("datum.grey")
        .then(alt.value("var(--soft)"))
        .otherwise(alt.Color("series:N", scale=color_scale(series), legend=None))
    )
    return (
        alt.Chart(frame)
        .mark_text(align="left", dx=9, fontWeight="bold", fontSize=11)
        .encode(
            x=x,
            y=alt.Y("at:Q", scale=alt.Scale(domain=[low, high], nice=False, zero=False)),
            text="text:N",
            color=color,
            opacity=lit(1.0, 0.25),
        )
    )


def _edge_note(baseline: pd.DataFrame, name: str, low: float, height: int) -> alt.Chart:
    value = baseline["value"].mean()
    below = value < low
    text = f"{'↓' if below else '↑'} {name}: {value:.3g}, off this scale"
    return (
        alt.Chart(pd.DataFrame([{"text": text}]))
        .mark_text(
            align="left", baseline="bottom" if below else "top", color="var(--soft)", fontSize=10.5, fontStyle="italic"
        )
        .encode(text="text:N", x=alt.value(4), y=alt.value(height - 3 if below else 3))
    )


def _domain(table: pd.DataFrame) -> tuple[float, float, bool]:
    """The y domain, and whether the baseline lies in it.

    The baseline is included where there is no other control, or where it widens the range by less than three fifths.
    """
    drawn = table[table["group"] != "baseline"]
    lows, highs = drawn["low"].fillna(drawn["value"]), drawn["high"].fillna(drawn["value"])
    low, high = float(min(lows.min(), drawn["value"].min())), float(max(highs.max(), drawn["value"].max()))
    base = table.loc[table["group"] == "baseline", "value"]
    fits = False
    if len(base):
        low_all, high_all = min(low, float(base.min())), max(high, float(base.max()))
        alone = not (table["group"] == "untrained").any()
        fits = alone or high_all - low_all < 1.6 * (high - low)
        if fits:
            low, high = low_all, high_all
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    if 0 <= low < 0.3 * high:
        return 0.0, high + margin, fits
    return low - margin, high + margin, fits


def _layer_axis(table: pd.DataFrame, transitions: bool) -> alt.Axis:
    layers = sorted(table["layer"].unique())
    step = max(1, math.ceil(len(layers) / 13))
    label = "datum.value + '→' + (datum.value + 1)" if transitions else "format(datum.value, 'd')"
    return alt.Axis(values=[int(layer) for layer in layers[::step]], labelExpr=label, labelOverlap=True)


def _layer_scale(table: pd.DataFrame) -> alt.Scale:
    first, last = int(table["layer"].min()), int(table["layer"].max())
    return alt.Scale(domain=[first - 0.15, max(last, first + 1) + 0.05], nice=False, zero=False)
