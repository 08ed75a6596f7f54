"""Charts over training: lines by update, layer × update cells, and their axis: updates, tokens or progress."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from .._theme import RANK_STEPS
from ._chart import CONTROL, HEIGHT, NAME, amount, finished, lit, opacity_if, spread, tips, with_field
from ._lines import folded, lines
from ._marks import Channel, Constant, Layer, Rows, calculated, channel, draw, expression, filtered, span

# The training axis: updates on a log scale with 0 left of a break, or tokens, progress, learning rate.
#
# A chart carries the positions of its checkpoints on every clock, as shares of the axis; the page sets `clock` to the
# shown clock, and `now` to the current update.

CLOCKS = {
    "update": "updates",
    "tokens": "tokens that the loss was computed on",
    "progress": "share of all updates",
    "lr_share": "share of the summed learning rate",
}
"""Column of a checkpoint → title of the axis."""
_BREAK = 0.08  # share of the axis left of the first update
_END = 0.02  # share of the axis before the first and after the last checkpoint


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TimeAxis:
    """The times of each line's checkpoints, on every clock known for all of them."""

    checkpoints: pd.DataFrame  # series, update and the clocks
    names: tuple[str, ...]  # names of the known clocks
    room: float = 0.0  # share of the axis after the last checkpoint, for line names
    suspects: frozenset[tuple[str, int]] = frozenset()  # series and update of checkpoints that failed a check

    @classmethod
    def of(cls, checkpoints: pd.DataFrame, suspects: Iterable[tuple[str, int]] = ()) -> "TimeAxis":
        known = [name for name in CLOCKS if name == "update" or _is_known(checkpoints[name])]
        ordered = checkpoints.sort_values(["series", "update"], ignore_index=True)
        return cls(checkpoints=ordered, names=tuple(known), suspects=frozenset(suspects))

    def suspected(self, rows: pd.DataFrame) -> pd.Series:
        """Mask of the rows at suspect checkpoints, which are drawn hollow."""
        pairs = zip(rows["series"].astype(str), rows["update"].astype(int), strict=True)
        return pd.Series([pair in self.suspects for pair in pairs], index=rows.index, dtype=bool)

    @property
    def first(self) -> int:
        """The first update after 0."""
        later = self.checkpoints.loc[self.checkpoints["update"] > 0, "update"]
        return int(later.min()) if len(later) else 1

    @property
    def last(self) -> int:
        return max(int(self.checkpoints["update"].max()), self.first + 1)

    @property
    def most_tokens(self) -> float:
        return float(self.checkpoints["tokens"].max())

    @property
    def has_start(self) -> bool:
        return bool((self.checkpoints["update"] == 0).any())

    def places(self, series: str, updates: Any) -> np.ndarray:
        """(update, clock): positions on the axis, in 0..1; tokens and learning rates are interpolated."""
        updates = np.asarray(updates, dtype=float)
        own = self.checkpoints[self.checkpoints["series"] == series]
        at = own["update"].to_numpy(dtype=float)
        columns = []
        for name in self.names:
            if name == "update":
                columns.append(self._logarithmic(updates))
            else:
                scale = self.most_tokens if name == "tokens" else 1.0
                columns.append(np.interp(updates, at, own[name].to_numpy(dtype=float)) / (scale or 1.0))
        return np.round(np.stack(columns, axis=-1), 4)

    def placed(self, rows: pd.DataFrame, series: str = "", **fields: str) -> Layer:
        """Add fields to the rows that place columns of updates on the clock of the figure's axis.

        `rows` belong to the line `series`, or have a column `series`. `fields`: field → column of updates; a field with
        the column's name replaces it.
        """
        columns = dict.fromkeys(fields.values())
        parts = [(series, rows)] if series else rows.groupby("series", sort=False)
        at = [
            own.assign(**{f"{column}_at": self.places(str(key), own[column]).tolist() for column in columns})
            for key, own in parts
        ]
        known = pd.concat(at).drop(columns=[name for name, column in fields.items() if name == column])
        return calculated(known, **{name: f"datum.{column}_at[clock]" for name, column in fields.items()})

    def _logarithmic(self, updates: np.ndarray) -> np.ndarray:
        left = _BREAK if self.has_start else 0.0
        share = np.log2(np.maximum(updates, self.first) / self.first) / math.log2(self.last / self.first)
        return np.where(updates <= 0, 0.0, left + (1 - left) * share)

    def parameters(self, series: list[str]) -> dict[str, Any]:
        """Parameters that let a chart with these lines follow the page's checkpoint and clock; see `timed`."""
        ticks = [self._ticks(name) for name in self.names]
        return {
            "places": {key: self._own_places(key) for key in series},
            "ticks": [[place for place, _ in own] for own in ticks],
            "tick_labels": [[label for _, label in own] for own in ticks],
            "clock": 0,
            "now": self.last,
        }

    def _own_places(self, series: str) -> dict[str, list[float]]:
        """For each checkpoint: its position on each clock, and the update at which the next one starts."""
        own = self.checkpoints.loc[self.checkpoints["series"] == series, "update"].to_numpy(dtype=int)
        places = self.places(series, own)
        until = [*own[1:].tolist(), 10**12]
        return {str(u): [*row, end] for u, row, end in zip(own.tolist(), places.tolist(), until, strict=True)}

    def edges(self, series: str, updates: Any) -> np.ndarray:
        """(update, clock, 2): start and end of each update's cell, halfway to its neighbours."""
        places = self.places(series, updates)
        half = (places[1:] + places[:-1]) / 2
        first, last = places[:1] - (half[:1] - places[:1]), places[-1:] + (places[-1:] - half[-1:])
        if len(places) < 2:
            first, last, half = places - _BREAK / 2, places + _BREAK / 2, places[:0]
        low = np.concatenate([np.maximum(first, -_END), half])
        high = np.concatenate([half, np.minimum(last, 1 + _END)])
        if self.has_start and len(places) > 1 and self.names[0] == "update":
            high[0, 0], low[1, 0] = 0.4 * _BREAK, 0.75 * _BREAK  # the break
            low[0, 0] = -_END
        return np.round(np.stack([low, high], axis=-1), 5)

    def _ticks(self, name: str) -> list[tuple[float, str]]:
        if name == "update":
            start = [(0.0, "0")] if self.has_start else []
            decades = 10.0 ** np.arange(math.floor(math.log10(self.first)), math.log10(self.last) + 1e-9)
            within = (1, 3) if len(decades) <= 3 else (1,)
            marks = [
                float(mark * times) for mark in decades for times in within if self.first <= mark * times <= self.last
            ]
            marks = marks or [float(self.first)]
            near = [mark for mark in marks if self.last / mark > 1.9 or mark == self.last]
            marks = [*near, *([float(self.last)] if self.last not in near else [])]
            places = self._logarithmic(np.array(marks))
            return start + [(round(float(at), 4), short(mark)) for at, mark in zip(places, marks, strict=True)]
        if name == "tokens":
            step = 10 ** math.floor(math.log10(self.most_tokens / 2))
            step *= next(times for times in (5, 2, 1) if self.most_tokens / (step * times) >= 2)
            marks = np.arange(0, self.most_tokens * 1.001, step)
            return [(round(float(mark / self.most_tokens), 4), short(float(mark))) for mark in marks]
        return [(share, f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]

    def with_room(self, room: float) -> "TimeAxis":
        return replace(self, room=room)

    def channel(self, field: str = "x") -> Channel:
        """The axis channel; rows are placed by this field."""
        axis = {
            "values": expression("ticks[clock]"),
            "labelExpr": "tick_labels[clock][indexof(ticks[clock], datum.value)]",
            "labelOverlap": "greedy",
        }
        scale = {"domain": [-_END, 1 + _END + self.room], "nice": False, "zero": False}
        return channel("x", f"{field}:Q", title=None, axis=axis, scale=scale)

    def title(self, height: int) -> list[Layer]:
        """The clock's name below the axis, and the break before the first update."""
        stated = [{"clock": number, "text": CLOCKS[name]} for number, name in enumerate(self.names)]
        base = filtered(pd.DataFrame(stated), "datum.clock === clock")
        look = {"align": "left", "baseline": "top", "fontSize": 12, "color": "var(--ink)", "text": "text:N"}
        layers = [draw("text", base, look, x=Constant(0), y=Constant(height + 22))]
        if self.has_start:
            cut = pd.DataFrame([{"x": round(0.58 * _BREAK, 4), "text": "//"}])
            style = {"baseline": "middle", "fontSize": 11, "color": "var(--control)", "text": "text:N"}
            there = opacity_if("clock === 0", 1, 0)
            layers.append(draw("text", cut, style, x=self.channel(), y=Constant(height), opacity=there))
        return layers

    def marker(self, series: list[str]) -> Layer:
        """A vertical line at each line's current checkpoint."""
        own = self.checkpoints[self.checkpoints["series"].isin(series)]
        rows = own.drop_duplicates("update") if len(self.names) == 1 else own
        base = timed(rows[["series", "update"]])
        return draw("rule", base, color="var(--soft)", strokeWidth=1, x=self.channel(), opacity=at_now(0.8))

    def finished(self, layers: list[Layer], height: int, series: list[str], **start: Any) -> dict[str, Any]:
        """The chart specification (see `finished`), with the axis title."""
        return finished([*layers, *self.title(height)], height, **self.parameters(series), **start)


NOW = "datum.update <= now && now < places[datum.series][datum.update][length(places[datum.series][datum.update]) - 1]"
"""Whether a row is at the page's current checkpoint: the last one of its line up to the page's update."""


def timed(rows: Rows) -> Layer:
    """Add to rows with `series` and `update` their position `x` on the shown clock."""
    return calculated(rows, x="places[datum.series][datum.update][clock]")


def at_now(then: float) -> Channel:
    """Opacity `then` at the page's current checkpoint, and 0 elsewhere."""
    return opacity_if(NOW, then, 0)


def short(value: float) -> str:
    """A number of updates or tokens in short form: `5k`, `1.4M`."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _is_known(values: pd.Series) -> bool:
    return bool(np.isfinite(values.astype(float)).all()) and float(values.max()) > 0


ROW_NAME = {
    "align": "left",
    "baseline": "bottom",
    "fontSize": 10.5,
    "dy": -1,
    "limit": expression("width"),
    "color": "var(--ink)",
}
"""Row name above its content."""
TOUCH = {"filled": True, "opacity": 0}
"""Invisible points as hover targets."""
HOLLOW_MARK = {"filled": False, "fill": "var(--paper)", "strokeWidth": 1.6}
_AT_END = {"align": "left", "dx": 6, "fontSize": 10.5}
_GAP = 13  # pixels between names at the ends of lines
_CELL = 20  # pixels per layer


def time_lines(
    axis: TimeAxis,
    rows: pd.DataFrame,
    y: Channel,
    look: dict[str, Any],
    *,
    by: str = "series",
    height: int = HEIGHT,
    names: Mapping[str, str] | None = None,
    room: float = 0.0,
    control: pd.DataFrame | None = None,
    beneath: Sequence[Layer] = (),
    tooltip: list[Channel] | None = None,
    light: Any = lit,
    band: float = 0.14,
    width: float = 1.9,
) -> dict[str, Any]:
    """Lines of `value` by `update` with bands, a dot at the page's current checkpoint, and names at their ends.

    Args:
        rows: With the columns series, update, value, low, high and seeds.
        y: The axis of values (see `amount`), with its domain.
        look: The optional encodings `color` and `strokeDash`.
        by: The column that distinguishes lines.
        names: Name of each line, at its end.
        room: Share of the axis reserved for names.
        control: Rows with series, update and `value`, drawn as dashed grey lines.
        beneath: Layers drawn first.
        light: Function that turns an opacity into one that dims.
    """
    axis, keys = axis.with_room(room), list(dict.fromkeys(rows["series"]))
    columns = dict.fromkeys(["series", by, "update", "value", "low", "high", "seeds"])
    rows = rows.loc[:, list(columns)].round(dict.fromkeys(("value", "low", "high"), 4))
    at, kind = {"x": axis.channel(), "y": y}, "O" if pd.api.types.is_numeric_dtype(rows[by]) else "N"
    look = look | ({} if by == "series" else {"detail": f"{by}:{kind}"})
    own = {name: look[name] for name in ("color", "detail") if name in look}
    grey = []
    if control is not None and len(control):
        base = timed(control[["series", "update", "value"]].round(4))
        grey = [draw("line", base, CONTROL, at, detail="series:N", opacity=lit(1.0, 0.5))]
    drawn = lines(rows, at, look, on=timed, light=light, band=band, width=width, size=0, touch=0)
    base, doubtful = timed(rows), rows[axis.suspected(rows)]
    dots = draw("point", base, at, own, filled=True, size=48, opacity=at_now(1))
    layers = [axis.marker(keys), *grey, *beneath, *drawn, dots]
    layers.append(draw("point", timed(doubtful), at, own, HOLLOW_MARK, size=64, opacity=light()))
    if tooltip:
        layers.append(draw("point", base, at, TOUCH, size=160, tooltip=tooltip))
    if names:
        ends = rows.loc[rows.groupby(by)["update"].idxmax(), list(dict.fromkeys(["series", by, "update", "value"]))]
        low, high = y["scale"]["domain"]
        ends = ends.assign(text=ends[by].map(names), at=spread(list(ends["value"]), _GAP / height * (high - low), high))
        above = with_field(y, "at")
        layers.append(draw("text", timed(ends), NAME, own, _AT_END, x=at["x"], y=above, text="text:N", opacity=light()))
    return axis.finished(layers, height, keys)


def layer_cells(axis: TimeAxis, rows: pd.DataFrame, ends: tuple[float, float], unit: str) -> dict[str, Any]:
    """Squares for one line, layers (upward) by updates (across): stronger colours mean larger `value`.

    A frame marks the page's current checkpoint.
    """
    key = str(rows["series"].iloc[0])
    updates = sorted({int(update) for update in rows["update"]})
    order = sorted({int(each) for each in rows["layer"]}, reverse=True)
    held = {str(u): edge for u, edge in zip(updates, axis.edges(key, updates).tolist(), strict=True)}
    digits = _digits(rows[["layer", "update", "value"]], ends)
    across = {"x": axis.channel(), "x2": "x2:Q"}
    scale = {"domain": list(ends), "range": [0.04, 1], "clamp": True}
    look = {
        "y": channel("y", "layer:O", title=None, sort=order, axis={"title": "layer", "domain": False, "ticks": False}),
        "opacity": channel("opacity", "value:Q", scale=scale, legend=None),
        "tooltip": tips("layer:O", "update:Q||,", f"value:Q|{unit}|.4g"),
    }
    edges, series = {name: f"cells[datum.update][clock][{side}]" for side, name in enumerate(across)}, json.dumps(key)
    doubtful = axis.suspected(rows)
    full, hollow = {"color": "var(--heat-2)"}, {"filled": False, "stroke": "var(--heat-2)", "strokeWidth": 1.4}
    marks = [
        draw("rect", calculated(folded(digits[chosen], "layer"), **edges, series=series), across, look, style)
        for chosen, style in ((~doubtful, full), (doubtful, hollow))
    ]
    height = max(_CELL * len(order), 60)
    frames = calculated(pd.DataFrame({"update": updates}), **edges, series=series)
    frame = {"filled": False, "stroke": "var(--ink)", "strokeWidth": 1.6, "y": Constant(0), "y2": Constant(height)}
    marks.append(draw("rect", frames, across, frame, opacity=at_now(1)))
    return axis.finished(marks, height, [key], cells=held)


def layer_profile(
    axis: TimeAxis, rows: pd.DataFrame, ends: tuple[float, float], title: str, color: Channel
) -> dict[str, Any]:
    """Values by layer at the page's current checkpoint; those at the end of training are pale."""
    digits = _digits(rows[["series", "layer", "update", "value"]], ends)
    order = sorted({int(each) for each in rows["layer"]})
    across = (order[0] - 0.2, max(order[-1], order[0] + 1) + 0.2)
    axis_of_layers = {"values": order, "format": "d", "labelOverlap": True}
    x = channel(
        "x", "layer:Q", title="layer", axis=axis_of_layers, scale={"domain": across, "nice": False, "zero": False}
    )
    at = {"x": x, "y": amount("y", "value", title, span(ends, margin=0.06)), "color": color}
    last = digits[digits["update"] == digits.groupby("series")["update"].transform("max")].drop(columns="update")
    now = filtered(folded(digits, ["series", "layer"]), NOW)
    tooltip = tips("series:N|model", "layer:Q", "update:Q||,", "value:Q||.4g")
    layers = [
        draw("line", last, at, strokeWidth=1.2, strokeDash=[2, 3], opacity=lit(0.55)),
        draw("line", now, at, strokeWidth=2.2, opacity=lit()),
        draw("point", now, at, filled=True, size=46, opacity=lit(), tooltip=tooltip),
    ]
    return finished(layers, 170, **axis.parameters(list(dict.fromkeys(rows["series"]))))


def layer_color(layers: Sequence[int]) -> Channel:
    """Colours from the lowest layer (pale) to the top."""
    order = sorted(set(layers))
    scale = {"domain": order, "range": layer_shades(order)}
    return channel("color", "layer:O", scale=scale, legend=None)


def layer_shades(layers: Sequence[object]) -> list[str]:
    """Colours of these layers, in their order."""
    last = max(len(layers) - 1, 1)
    return [f"var(--rank-{round((RANK_STEPS - 1) * index / last)})" for index in range(len(layers))]


def layer_legend(layers: Iterable[int]) -> list[dict[str, str]]:
    order = sorted({int(layer) for layer in layers})
    return [{"label": f"layer {each}", "color": shade} for each, shade in zip(order, layer_shades(order), strict=True)]


def _digits(rows: pd.DataFrame, ends: tuple[float, float]) -> pd.DataFrame:
    """Round to four digits of the scale's width, which is finer than any colour."""
    step = ((ends[1] - ends[0]) or 1.0) / 2000
    values = [float(f"{round(value / step) * step:.6g}") if value == value else value for value in rows["value"]]
    return rows.assign(value=values)
