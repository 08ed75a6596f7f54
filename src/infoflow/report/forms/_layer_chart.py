"""The most common chart: a value by layer, with one line per objective, model or frequency bin."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import pandas as pd

from .._in_words import listed
from .._theme import Series
from ._chart import (
    BASELINE,
    CONTROL,
    HEIGHT,
    LABEL_GAP,
    NAME,
    AbstractForm,
    Frame,
    amount,
    bounded,
    by_key,
    color_if,
    color_of,
    finished,
    free_scales,
    lit,
    scale_note,
    spread,
    tips,
)
from ._lines import ANY, SHARE, control_lines, hovered_layer, level, lines, looks_of
from ._marks import Channel, Constant, Layer, channel, draw
from ._over_time import layer_shades

_CONVERGED = {True: "has converged", False: "has not converged: more text would change it"}
_ROW = 9  # pixels per row of squares
_KNOWN = {"color": "var(--soft)", "strokeWidth": 1.2}
_FURTHER = ([9, 2, 2, 2], [2, 2], [14, 3])  # dashes of additional controls, in order


class _Span(NamedTuple):
    """Range of the y axis, and whether it includes the measure's baseline."""

    low: float
    high: float
    holds_baseline: bool
    inverted: bool = False
    foot: int = 0  # pixels at the lower edge for the convergence strip

    def reaching(self, value: float) -> "_Span":
        """Extend the range to include a value, unless that would squash the curves to less than a fifth."""
        low, high = min(self.low, value), max(self.high, value)
        if (low, high) == (self.low, self.high) or high - low > 5 * (self.high - self.low):
            return self
        margin = 0.06 * (high - low)
        return self._replace(low=low - margin * (low < self.low), high=high + margin * (high > self.high))

    def above_strip(self, rows: int) -> "_Span":
        """Extend the range downwards to fit this number of rows of squares."""
        foot = _ROW * rows + 4 if rows else 0
        below = (self.high - self.low) * foot / (HEIGHT - foot)
        ends = {"high": self.high + below} if self.inverted else {"low": self.low - below}
        return self._replace(foot=foot, **ends)


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerChart(AbstractForm):
    """The chart of `curves(...)`.

    The measure's baseline is drawn unless it would squash the curves; then a note at the edge gives its value. If the
    table has a column `converged`, one row of squares per line marks the layers where its estimate has converged.
    Groups listed in `controls` are also grey, each with its own dash.
    """

    table: pd.DataFrame
    series: list[Series]
    y_title: str
    baseline_name: str = ""
    x_title: str = "layer (0 = embeddings)"
    bounds: tuple[float, float] = ANY
    transitions: bool = False  # the axis reads 0→1, 1→2, …
    y_range: tuple[float, float] | None = None  # shared by panels that are compared
    inverted: bool = False  # whether the y axis points down, for quantities where small values mean more
    chosen: Frame | None = None
    controls: tuple[str, ...] = ()
    known: tuple[float, str] | None = None  # a value known at the lowest layer, and its name; drawn as a line across

    @property
    def frame(self) -> Frame:
        span = self._span(self._bounded)
        layers = [int(layer) for layer in self.table["layer"].unique()]
        return self.chosen or Frame(min(layers), max(layers), span.low, span.high)

    @property
    def compared(self) -> bool:
        return self.y_range is not None

    @property
    def spec(self) -> dict[str, Any]:
        table = self._bounded.assign(name=self.table["series"].map({s.key: s.label for s in self.series}))
        rows = len(self.series) if "converged" in table else 0
        span = self._span(table).above_strip(rows)
        x = layer_axis(table, self.frame, self.x_title, self.transitions, most=13)
        y = amount("y", "value", self.y_title, [span.low, span.high], ticks=6, reverse=self.inverted)
        at = {"x": x, "y": y}
        trained, untrained, baseline = (table[table["group"] == name] for name in ("trained", "untrained", "baseline"))
        layers = [hovered_layer(sorted(table["layer"].unique().tolist()), x), *control_lines(untrained, at)]
        for name, dash in zip(self.controls, _FURTHER, strict=False):
            layers += control_lines(table[table["group"] == name], at, {**CONTROL, "strokeDash": dash})
        if span.holds_baseline:
            layers += control_lines(baseline, at, BASELINE)
        elif len(baseline):
            layers += _edge_note(baseline, self.baseline_name, span)
        known = self.known if self.known and span.low <= self.known[0] <= span.high else None
        if known:
            layers.append(level(known[0], _KNOWN, y=y))
        elif self.known:
            layers += _edge_note(pd.DataFrame([{"value": self.known[0]}]), self.known[1], span)
        layers += _series_layers(trained, self.series, at)
        if rows:
            layers += _convergence_strip(trained, self.series, x)
        layers.append(_direct_labels(table, self.series, at, span, self.baseline_name, self.controls, known))
        return finished(layers, HEIGHT)

    @property
    def _bounded(self) -> pd.DataFrame:
        return bounded(self.table, self.bounds)

    def _span(self, table: pd.DataFrame) -> _Span:
        given = self.y_range if self.chosen is None else (self.chosen.low, self.chosen.high)
        span = _y_range(table, given)
        if self.known and given is None:
            span = span.reaching(self.known[0])
        return span._replace(inverted=self.inverted)


def layer_axis(rows: pd.DataFrame, frame: Frame, title: str, transitions: bool, most: int = 99) -> Channel:
    """The layer axis, with at most about `most` labels."""
    layers = sorted(int(layer) for layer in rows["layer"].unique())
    label = "datum.value + '→' + (datum.value + 1)" if transitions else "format(datum.value, 'd')"
    axis = {"values": layers[:: max(1, math.ceil(len(layers) / most))], "labelExpr": label, "labelOverlap": True}
    scale = {"domain": [frame.first - 0.15, max(frame.last, frame.first + 1) + 0.05], "nice": False, "zero": False}
    return channel("x", "layer:Q", title=title, axis=axis, scale=scale)


def _series_layers(trained: pd.DataFrame, series: list[Series], at: dict[str, Any]) -> list[Layer]:
    """The lines; those of pairs of models have dashes in the second model's colour on top of the first model's."""
    tooltip = tips("name:N|model", "layer:Q|layer", "shown:N|value", "count:Q|occurrences|,")
    second = {s.key: s.second_color for s in series if s.second_color}
    rows = trained[trained["series"].isin(list(second))]
    color = by_key("stroke", "second", list(second), list(second.values()))
    look = {"strokeWidth": 2.4, "strokeDash": [8, 8], "strokeCap": "butt", "stroke": color, "opacity": lit()}
    dashes = draw("line", rows.assign(second=rows["series"]), at, look)
    return lines(trained, at, looks_of(series), tooltip=tooltip, over=[dashes])


def _convergence_strip(trained: pd.DataFrame, series: list[Series], x: Channel) -> list[Layer]:
    """Squares along the lower edge, one row per line: hollow where more data would change the value."""
    look = {"shape": "square", "size": 26, "opacity": lit(), "color": color_of(series)}
    tooltip = tips("name:N|model", "layer:Q", "state:N|value")
    strips = []
    for row, line in enumerate(reversed(series)):
        at = {"x": x, "y": Constant(HEIGHT - 5 - _ROW * row)}
        for converged, meaning in _CONVERGED.items():
            part = trained[(trained["series"] == line.key) & (trained["converged"] == converged)]
            if len(part):
                strips.append(draw("point", part.assign(state=meaning), at, look, filled=converged, tooltip=tooltip))
    return strips


def _direct_labels(
    table: pd.DataFrame,
    series: list[Series],
    at: dict[str, Any],
    span: _Span,
    baseline: str,
    controls: tuple[str, ...] = (),
    known: tuple[float, str] | None = None,
) -> Layer:
    """Names at the right ends of the lines, moved apart where they would overlap."""
    gap = LABEL_GAP / HEIGHT * (span.high - span.low)
    names = {s.key: s.label for s in series}
    ends = table.loc[table.groupby(["group", "series"])["layer"].idxmax()]
    labels = [(row.series, names[row.series], row.value) for row in ends[ends["group"] == "trained"].itertuples()]
    for name in ("untrained", *controls):
        labels += [("", text, end) for text, end in control_names(ends[ends["group"] == name], name, names, 2 * gap)]
    if span.holds_baseline:
        labels += [("", baseline, end) for end in ends.loc[ends["group"] == "baseline", "value"]]
    labels += [("", known[1], known[0])] if known else []
    frame = pd.DataFrame(labels, columns=["series", "text", "at"]).assign(layer=int(table["layer"].max()))
    return end_labels(frame, gap, span.high, at, color_if("datum.series === ''", "var(--soft)", color_of(series)))


def end_labels(frame: pd.DataFrame, gap: float, high: float, at: dict[str, Any], color: Any, **look: Any) -> Layer:
    """The column `text` to the right of each line's end, at height `at`, moved apart to at least `gap`."""
    frame = frame.assign(at=spread(list(frame["at"]), gap, high))
    at = {"x": at["x"], "y": channel("y", "at:Q", scale=at["y"]["scale"])}
    name = {"align": "left", "dx": 9, "limit": 150, **NAME}
    return draw("text", frame, name, look, at, text="text:N", color=color, opacity=lit(1.0, 0.25))


def control_names(ends: pd.DataFrame, name: str, labels: dict[str, str], gap: float) -> list[tuple[str, float]]:
    """Names and heights of a control's lines: one name if all end together, otherwise one per cluster.

    The largest of several clusters is labelled "others", since the names would not fit.
    """
    found = _clusters(ends, gap)
    if len(found) < 2 or not set(ends["series"]) <= set(labels):
        return [(name, float(group["value"].mean())) for group in found]
    most = max(found, key=len)
    return [
        (
            f"{name}, others"
            if group is most and len(group) > 1
            else f"{name} {listed([labels[key] for key in group['series']])}",
            float(group["value"].mean()),
        )
        for group in found
    ]


def _clusters(ends: pd.DataFrame, gap: float) -> list[pd.DataFrame]:
    """Clusters of ends, from the lowest; neighbours closer than `gap` share one."""
    ordered = ends.sort_values("value", kind="stable")
    number = (ordered["value"].diff() >= gap).cumsum()
    return [group for _, group in ordered.groupby(number, sort=True)]


def _edge_note(baseline: pd.DataFrame, name: str, span: _Span) -> list[Layer]:
    """A dashed line and the baseline's value, at the edge beyond which the baseline lies."""
    value = float(baseline["value"].mean())
    below = (value < span.low) != span.inverted
    text = f"{'↓' if below else '↑'} {name}: {value:.2g} (off scale)"
    at, floor = pd.DataFrame([{"text": text}]), HEIGHT - span.foot
    look = {"color": "var(--soft)", "fontSize": 10.5, "fontStyle": "italic", "align": "left", "x": Constant(4)}
    baseline_at, line, words = ("bottom", floor - 2, floor - 5) if below else ("top", 1, 5)
    return [
        draw("rule", at, BASELINE, y=Constant(line)),
        draw("text", at, look, baseline=baseline_at, text="text:N", y=Constant(words)),
    ]


def _y_range(table: pd.DataFrame, given: tuple[float, float] | None) -> _Span:
    """Range of the curves with their bands, including the baseline if it is close.

    Close means that the range grows by less than three fifths, or less than fivefold if the baseline is the only
    control.
    """
    base = table.loc[table["group"] == "baseline", "value"].dropna()
    if given is not None:
        return _Span(*given, holds_baseline=len(base) > 0 and bool(base.between(*given).all()))
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
    return _Span(0.0 if 0 <= low < 0.3 * high else low - margin, high + margin, holds)


def panel_scales(
    tables: Iterable[pd.DataFrame], note: str, bounds: tuple[float, float] = ANY, zero: float = math.inf
) -> tuple[tuple[float, float] | None, str]:
    """One scale for all panels (None if one spans more than five times another), and the caption's note about it.

    For `bounds` and `zero`, see `shared_range`.
    """
    tables = [table for table in tables if len(table)]
    spans = [high - low for low, high in (shared_range(table, bounds, zero) for table in tables)]
    shared = None if free_scales(spans) else shared_range(pd.concat(tables, ignore_index=True), bounds, zero)
    return shared, scale_note(spans, note)


def shared_range(table: pd.DataFrame, bounds: tuple[float, float] = ANY, zero: float = math.inf) -> tuple[float, float]:
    """Range of all rows; includes 0 if the lowest value is below `zero` times the highest."""
    table = bounded(table, bounds)
    low, high = float(table[["low", "value"]].min().min()), float(table[["high", "value"]].max().max())
    low = min(low, 0.0) if low < zero * high else low
    margin = 0.06 * (high - low) or 0.1
    return (low - margin if low else 0.0), high + margin


_LABEL_GAP = 12.5  # pixels between direct labels
_NAMES, _MARKS = ("frequent", "middle", "rare"), ("circle", "square", "triangle-up")


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RankChart(AbstractForm):
    """The chart of one model's `rank_curves`, from 0 to `top`, the largest value of all panels on this scale.

    With more than three bins, all but the first, middle and last are thin grey lines: nobody can distinguish eight
    shades.
    """

    table: pd.DataFrame
    y_title: str
    x_title: str
    control_name: str
    top: float
    transitions: bool = False  # the axis reads 0→1, 1→2, …
    shared: bool = True  # whether the other panels of the figure have this scale
    chosen: Frame | None = None

    @property
    def frame(self) -> Frame:
        layers = [int(layer) for layer in self.table["layer"].unique()]
        return self.chosen or Frame(min(layers), max(layers), 0.0, 1.06 * self.top)

    @property
    def compared(self) -> bool:
        return self.shared

    @property
    def spec(self) -> dict[str, Any]:
        table, frame = bounded(self.table, SHARE), self.frame
        x = layer_axis(table, frame, self.x_title, self.transitions)
        at = {"x": x, "y": amount("y", "value", self.y_title, [frame.low, frame.high])}
        bins, control = table[table["group"] == "bin"], table[table["group"] == "control"]
        named = _named(bins)
        color, shape = (
            by_key(name, "ranks", list(named), values)
            for name, values in (("color", layer_shades(list(named))), ("shape", _MARKS))
        )
        tooltip = tips("ranks:N|frequency rank", "layer:Q|layer", "shown:N|value", "count:Q|occurrences|,")
        shown, rest = (bins[bins["ranks"].isin(named) == kept] for kept in (True, False))
        how: dict[str, Any] = {"touch": 120, "tooltip": tooltip}
        thin = {"light": lambda opacity=1.0: lit(0.45 * opacity), "band": 0, "width": 1, "size": 0}
        grey = {"detail": "ranks:N", "color": Constant("var(--control)")}
        between = lines(rest, at, grey, **thin, **how)
        beneath = control_lines(control, at, band=0)
        drawn = lines(shown, at, {"color": color, "shape": shape}, beneath=beneath, band=0.15, size=26, **how)
        hovered = hovered_layer(sorted(table["layer"].unique().tolist()), x)
        return finished([hovered, *between, *drawn, self._labels(shown, named, control, at, color)], HEIGHT)

    def _labels(
        self, bins: pd.DataFrame, named: dict[str, str], control: pd.DataFrame, at: dict[str, Any], color: Channel
    ) -> Layer:
        last = int(bins["layer"].max())
        rows = bins[bins["layer"] == last].sort_values("rank_low")
        frame = rows[["ranks", "value", "series"]].rename(columns={"value": "at"}).assign(grey=False)
        frame["text"] = [f"{named[ranks]} {ranks}".strip() for ranks in frame["ranks"]]
        ends = control.loc[control["layer"] == last, ["value"]].rename(columns={"value": "at"})
        ends = ends.assign(text=self.control_name, ranks=self.control_name, series=rows["series"].iloc[0], grey=True)
        frame = (pd.concat([frame, ends], ignore_index=True) if len(ends) else frame).assign(layer=last)
        high = self.frame.high
        dimmed = color_if("datum.grey", "var(--soft)", color)
        look = {"dx": 7, "fontSize": 10.5, "limit": 110, "fontWeight": "normal"}
        return end_labels(frame, _LABEL_GAP / HEIGHT * high, high, at, dimmed, **look)


def _named(bins: pd.DataFrame) -> dict[str, str]:
    """Ranks of the labelled bins with their names, from the most frequent; all bins if there are up to three."""
    ranks = list(dict.fromkeys(bins.sort_values("rank_low")["ranks"]))
    if len(ranks) < 3:
        return dict(zip(ranks, (_NAMES[0], _NAMES[-1]), strict=False))
    return dict(zip((ranks[0], ranks[len(ranks) // 2], ranks[-1]), _NAMES, strict=True))
