"""The chart that most figures are: a value by layer, a line per objective or model, bands, controls in dashed grey."""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from .._language import JOIN, Series
from .._theme import vega_config
from ._conditional import color_if, opacity_if
from ._hollow import point_style

HEIGHT = 270
_ROW = 9  # pixels of a row of squares
PADDING = {"left": 2, "top": 2, "right": 6, "bottom": 2}
CONTROL = {"color": "var(--control)", "strokeDash": [4, 3], "strokeWidth": 1.6}
_BASELINE = {**CONTROL, "strokeDash": [1, 3]}
LABEL_GAP = 14  # pixels between direct labels


class _Range(NamedTuple):
    """The y axis, and whether the measure's baseline lies on it."""

    low: float
    high: float
    holds_baseline: bool
    inverted: bool = False
    foot: int = 0
    """Pixels at the lower edge that the strip of convergence takes."""

    def above_strip(self, rows: int) -> "_Range":
        """The range with room for so many rows of squares below it."""
        foot = _ROW * rows + 4 if rows else 0
        below = (self.high - self.low) * foot / (HEIGHT - foot)
        ends = {"high": self.high + below} if self.inverted else {"low": self.low - below}
        return self._replace(foot=foot, **ends)

    @property
    def scale(self) -> alt.Scale:
        return alt.Scale(domain=[self.low, self.high], nice=False, zero=False, reverse=self.inverted)


class _Axes(NamedTuple):
    x: alt.X
    y: alt.Y
    low: alt.Y

    @property
    def position(self) -> dict[str, Any]:
        return {"x": self.x, "y": self.y}


def layer_chart(
    table: pd.DataFrame,
    series: list[Series],
    *,
    y_title: str,
    baseline_name: str,
    x_title: str = "layer (0 = embeddings)",
    transitions: bool = False,
    y_range: tuple[float, float] | None = None,
    inverted: bool = False,
) -> dict[str, Any]:
    """A Vega-Lite specification for `curves(...)`, as wide as its container.

    The measure's baseline is drawn where it does not squash the curves; else a note at the edge names its value.
    With `transitions` the axis reads 0→1, 1→2, …; `y_range` gives panels that are compared the same scale.
    `inverted` turns the y axis, for quantities of which less is more. Where the table has a column `converged`, a row
    of squares for each line says at which layers its estimate has.
    """
    table = table.assign(name=table["series"].map({s.key: s.label for s in series}))
    rows = len(series) if "converged" in table else 0
    span = _y_range(table, y_range)._replace(inverted=inverted).above_strip(rows)
    axes = _axes(table, span, x_title, y_title, transitions)
    group = dict(iter(table.groupby("group")))
    untrained, baseline = group.get("untrained", table.head(0)), group.get("baseline", table.head(0))
    layers = [_hovered_layer(table, axes), *_control_layers(untrained, axes, CONTROL)]
    if span.holds_baseline:
        layers += _control_layers(baseline, axes, _BASELINE)
    elif len(baseline):
        layers += _edge_note(baseline, baseline_name, span)
    layers += _series_layers(group["trained"], series, axes)
    if rows:
        layers += _convergence_strip(group["trained"], series, axes.x)
    layers.append(_direct_labels(table, series, axes.x, span, baseline_name))
    return finished(alt.layer(*layers), HEIGHT)


def finished(chart: alt.LayerChart, height: int) -> dict[str, Any]:
    """The chart's specification with what all charts share: width, the page's parameters, config, padding.

    The page sets `highlight` to a line's key and `at_layer` to a layer, in all charts of a section at once.
    """
    with alt.data_transformers.disable_max_rows():  # 60 models have more pairs than its 5,000 rows
        spec = chart.to_dict(validate=False)  # what follows costs Altair two copies of the chart
    shared = [{"name": "highlight", "value": ""}, {"name": "at_layer", "value": -1}]
    size = {"height": height, "params": [*spec.pop("params", []), *shared], "width": "container"}
    return {**spec, **size, "config": vega_config(), "padding": PADDING}


def lit(opacity: float = 1.0, dimmed: float = 0.12) -> alt.OpacityValue:
    """Opacity of a mark: dimmed while another line is highlighted; a pair is lit with either of its models."""
    test = f"highlight === '' || indexof(split(datum.series, '{JOIN}'), highlight) >= 0 || datum.series === highlight"
    return opacity_if(test, opacity, opacity * dimmed)


def color_of(series: list[Series]) -> alt.Color:
    return alt.Color("series:N", scale=_scale(series, [s.color for s in series]), legend=None)


def dash_of(series: list[Series]) -> alt.StrokeDash:
    return alt.StrokeDash("series:N", scale=_scale(series, [list(s.dash) for s in series]), legend=None)


def shape_of(series: list[Series]) -> alt.Shape:
    return alt.Shape("series:N", scale=_scale(series, [s.shape for s in series]), legend=None)


def spread(positions: list[float], gap: float, high: float) -> list[float]:
    """The positions moved apart to at least `gap`, in their order, none above `high` unless it was."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = list(positions)
    for previous, current in pairwise(order):
        placed[current] = max(placed[current], placed[previous] + gap)
    if order and placed[order[-1]] > high >= positions[order[-1]]:
        placed[order[-1]] = high
        for current, following in reversed(list(pairwise(order))):
            placed[current] = min(placed[current], placed[following] - gap)
    return placed


def _scale(series: list[Series], values: list) -> alt.Scale:
    return alt.Scale(domain=[s.key for s in series], range=values)


def _axes(table: pd.DataFrame, span: _Range, x_title: str, y_title: str, transitions: bool) -> _Axes:
    first, last = int(table["layer"].min()), int(table["layer"].max())
    x_scale = alt.Scale(domain=[first - 0.15, max(last, first + 1) + 0.05], nice=False, zero=False)
    x = alt.X("layer:Q", title=x_title, axis=_layer_axis(table, transitions), scale=x_scale)
    y_axis = alt.Axis(tickCount=6)
    return _Axes(
        x,
        alt.Y("value:Q", title=y_title, scale=span.scale, axis=y_axis),
        alt.Y("low:Q", title=y_title, scale=span.scale, axis=y_axis),
    )


def _hovered_layer(table: pd.DataFrame, axes: _Axes) -> alt.Chart:
    """A line at the layer that is hovered somewhere in the section."""
    layers = pd.DataFrame({"layer": sorted(table["layer"].unique())})
    there = opacity_if("datum.layer === at_layer", 0.7, 0)
    return alt.Chart(layers).mark_rule(color="var(--soft)", strokeWidth=1).encode(x=axes.x, opacity=there)


def _series_layers(trained: pd.DataFrame, series: list[Series], axes: _Axes) -> list[alt.Chart]:
    base, color = alt.Chart(trained), color_of(series)
    tooltip = [
        alt.Tooltip("name:N", title="model"),
        alt.Tooltip("layer:Q", title="layer"),
        alt.Tooltip("shown:N", title="value"),
        alt.Tooltip("count:Q", title="occurrences", format=","),
    ]
    line = base.mark_line(strokeWidth=2.2).encode(
        **axes.position, color=color, strokeDash=dash_of(series), opacity=lit()
    )
    points = base.mark_point(size=42, **point_style(trained)).encode(
        **axes.position, color=color, shape=shape_of(series), opacity=lit()
    )
    touch = base.mark_point(size=500, filled=True, opacity=0).encode(**axes.position, tooltip=tooltip)
    pairs = [s for s in series if s.second_color]
    second = [_second_color(trained, pairs, axes)] if pairs else []
    return [_band(trained, axes).encode(color=color, opacity=lit(0.18)), line, *second, points, touch]


def _second_color(trained: pd.DataFrame, pairs: list[Series], axes: _Axes) -> alt.Chart:
    """Dashes in the second model's colour over the line in the first one's."""
    rows = trained[trained["series"].isin([s.key for s in pairs])]
    color = alt.Stroke("second:N", scale=_scale(pairs, [s.second_color for s in pairs]), legend=None)
    # A field of its own: the color scale of `series` already has the first model's colours.
    mark = alt.Chart(rows.assign(second=rows["series"])).mark_line(strokeWidth=2.4, strokeDash=[8, 8], strokeCap="butt")
    return mark.encode(**axes.position, stroke=color, opacity=lit())


def _band(rows: pd.DataFrame, axes: _Axes) -> alt.Chart:
    return alt.Chart(rows.dropna(subset=["low", "high"])).mark_area().encode(x=axes.x, y=axes.low, y2="high:Q")


def _control_layers(rows: pd.DataFrame, axes: _Axes, style: dict[str, Any]) -> list[alt.Chart]:
    if rows.empty:
        return []
    tooltip = [alt.Tooltip("group:N", title="control"), alt.Tooltip("layer:Q"), alt.Tooltip("shown:N", title="value")]
    line = alt.Chart(rows).mark_line(**style)
    return [
        _band(rows, axes).encode(color=alt.ColorValue("var(--control)"), detail="series:N", opacity=lit(0.10)),
        line.encode(**axes.position, detail="series:N", tooltip=tooltip, opacity=lit(1.0, 0.5)),
    ]


def _convergence_strip(trained: pd.DataFrame, series: list[Series], x: alt.X) -> list[alt.Chart]:
    """Along the lower edge, a row of squares for each line: hollow where more data would change the value."""
    strips = []
    for row, line in enumerate(reversed(series)):
        own = trained[trained["series"] == line.key]
        for converged in (True, False):
            part = own[own["converged"] == converged]
            if part.empty:
                continue
            meaning = "has converged" if converged else "has not converged: more text would change it"
            mark = alt.Chart(part.assign(state=meaning)).mark_point(
                shape="square", size=26, filled=converged, opacity=1
            )
            at = {"x": x, "y": alt.YValue(HEIGHT - 5 - _ROW * row)}
            tooltip = [alt.Tooltip("name:N", title="model"), "layer:Q", alt.Tooltip("state:N", title="value")]
            strips.append(mark.encode(**at, color=color_of(series), opacity=lit(), tooltip=tooltip))
    return strips


def _direct_labels(table: pd.DataFrame, series: list[Series], x: alt.X, span: _Range, baseline: str) -> alt.Chart:
    """Names at the right ends of the lines, moved apart where they would overlap."""
    gap = LABEL_GAP / HEIGHT * (span.high - span.low)
    names = {s.key: s.label for s in series}
    ends = table.loc[table.groupby(["group", "series"])["layer"].idxmax()]
    labels = [(row.series, names[row.series], row.value) for row in ends[ends["group"] == "trained"].itertuples()]
    labels += [("", "untrained", at) for at in _clusters(ends.loc[ends["group"] == "untrained", "value"], 2 * gap)]
    if span.holds_baseline:
        labels += [("", baseline, at) for at in ends.loc[ends["group"] == "baseline", "value"]]
    frame = pd.DataFrame(labels, columns=["series", "text", "at"]).assign(layer=int(table["layer"].max()))
    frame["at"] = spread(list(frame["at"]), gap, span.high)
    return (
        alt.Chart(frame)
        .mark_text(align="left", dx=9, fontWeight="bold", fontSize=11, limit=150)
        .encode(
            x=x,
            y=alt.Y("at:Q", scale=span.scale),
            text="text:N",
            color=color_if("datum.series === ''", "var(--soft)", color_of(series)),
            opacity=lit(1.0, 0.25),
        )
    )


def _clusters(values: pd.Series, gap: float) -> list[float]:
    """Means of the groups that values fall into when neighbours closer than `gap` belong together."""
    groups: list[list[float]] = []
    for value in sorted(values):
        if groups and value - groups[-1][-1] < gap:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [sum(group) / len(group) for group in groups]


def _edge_note(baseline: pd.DataFrame, name: str, span: _Range) -> list[alt.Chart]:
    """A dashed line along the edge beyond which the baseline lies, and its value."""
    value = float(baseline["value"].mean())
    below = (value < span.low) != span.inverted
    text = f"{'↓' if below else '↑'} {name}: {value:.2g} (off scale)"
    at = alt.Chart(pd.DataFrame([{"text": text}]))
    mark = at.mark_text(
        align="left", baseline="bottom" if below else "top", color="var(--soft)", fontSize=10.5, fontStyle="italic"
    )
    floor = HEIGHT - span.foot
    return [
        at.mark_rule(**_BASELINE).encode(y=alt.YValue(floor - 2 if below else 1)),
        mark.encode(text="text:N", x=alt.XValue(4), y=alt.YValue(floor - 5 if below else 5)),
    ]


def _y_range(table: pd.DataFrame, given: tuple[float, float] | None) -> _Range:
    """From the curves with their bands; the baseline is included where it widens the range by less than three fifths,
    or by less than five times where it is the only control."""
    base = table.loc[table["group"] == "baseline", "value"].dropna()
    if given is not None:
        return _Range(*given, holds_baseline=len(base) > 0 and bool(base.between(*given).all()))
    drawn = table[table["group"] != "baseline"]
    low, high = float(drawn[["low", "value"]].min().min()), float(drawn[["high", "value"]].max().max())
    holds = False
    if len(base):
        low_all, high_all = min(low, float(base.min())), max(high, float(base.max()))
        alone = "untrained" not in set(table["group"])
        holds = high_all - low_all < (6 if alone else 1.6) * (high - low)
        low, high = (low_all, high_all) if holds else (low, high)
    noted = len(base) > 0 and not holds  # the note along the edge needs a line of text
    margin = (0.1 if noted else 0.06) * (high - low) or 0.1 * abs(high) or 1.0
    return _Range(0.0 if 0 <= low < 0.3 * high else low - margin, high + margin, holds)


def _layer_axis(table: pd.DataFrame, transitions: bool) -> alt.Axis:
    layers = sorted(int(layer) for layer in table["layer"].unique())
    step = max(1, math.ceil(len(layers) / 13))
    label = "datum.value + '→' + (datum.value + 1)" if transitions else "format(datum.value, 'd')"
    return alt.Axis(values=layers[::step], labelExpr=label, labelOverlap=True)
