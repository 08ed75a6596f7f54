"""The axis of training: updates on a logarithmic axis, 0 left of a break, or tokens, progress, learning rate.

A chart carries the places of its checkpoints on every clock, as shares of the axis; the page sets `clock` to the one
that is shown, and `now` to the update that it has come to.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ._chart import finished, opacity_if

CLOCKS = {
    "update": "updates",
    "tokens": "tokens that the loss looked at",
    "progress": "share of all updates",
    "lr_share": "share of the summed learning rate",
}
"""Column of a checkpoint → title of the axis."""
_BREAK = 0.08  # share of the axis left of the first update
_END = 0.02  # of the axis, before the first and behind the last checkpoint


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TimeAxis:
    """When the checkpoints of each line were, on every clock that is known of all."""

    checkpoints: pd.DataFrame  # series, update and the clocks
    names: tuple[str, ...]  # of the clocks that are known
    room: float = 0.0  # share of the axis that it goes on behind the last checkpoint, for names of lines
    suspects: frozenset[tuple[str, int]] = frozenset()  # series and update of checkpoints that a check calls an error

    @classmethod
    def of(cls, checkpoints: pd.DataFrame, suspects: Iterable[tuple[str, int]] = ()) -> "TimeAxis":
        known = [name for name in CLOCKS if name == "update" or _is_known(checkpoints[name])]
        ordered = checkpoints.sort_values(["series", "update"], ignore_index=True)
        return cls(checkpoints=ordered, names=tuple(known), suspects=frozenset(suspects))

    def suspected(self, rows: pd.DataFrame) -> pd.Series:
        """Which rows are of suspects: these are drawn hollow."""
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
        """(update, clock): shares of the axis; between checkpoints tokens and sums of learning rates are linear."""
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

    def _logarithmic(self, updates: np.ndarray) -> np.ndarray:
        left = _BREAK if self.has_start else 0.0
        share = np.log2(np.maximum(updates, self.first) / self.first) / math.log2(self.last / self.first)
        return np.where(updates <= 0, 0.0, left + (1 - left) * share)

    def parameters(self, series: list[str]) -> dict[str, Any]:
        """What a chart of these lines needs to follow the page: see `timed`."""
        ticks = [self._ticks(name) for name in self.names]
        return {
            "places": {key: self._own_places(key) for key in series},
            "ticks": [[place for place, _ in own] for own in ticks],
            "tick_labels": [[label for _, label in own] for own in ticks],
            "clock": 0,
            "now": self.last,
        }

    def _own_places(self, series: str) -> dict[str, list[float]]:
        """Of each checkpoint: its place on each clock, and the update from which the next one counts."""
        own = self.checkpoints.loc[self.checkpoints["series"] == series, "update"].to_numpy(dtype=int)
        places = self.places(series, own)
        until = [*own[1:].tolist(), 10**12]
        return {str(u): [*row, end] for u, row, end in zip(own.tolist(), places.tolist(), until, strict=True)}

    def edges(self, series: str, updates: Any) -> np.ndarray:
        """(update, clock, 2): where a cell of each of these updates begins and ends, halfway to its neighbours."""
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

    def channel(self, field: str = "x") -> alt.X:
        """The axis: where each row is whose place has this name."""
        axis = alt.Axis(
            values=alt.ExprRef("ticks[clock]"),
            labelExpr="tick_labels[clock][indexof(ticks[clock], datum.value)]",
            labelOverlap="greedy",
        )
        scale = alt.Scale(domain=[-_END, 1 + _END + self.room], nice=False, zero=False)
        return alt.X(f"{field}:Q", title=None, axis=axis, scale=scale)

    def title(self, height: int) -> list[alt.Chart]:
        """The clock's name below the axis, and the break before the first update."""
        told = [{"clock": number, "text": CLOCKS[name]} for number, name in enumerate(self.names)]
        base = alt.Chart(pd.DataFrame(told)).transform_filter("datum.clock === clock")
        name = base.mark_text(align="left", baseline="top", fontSize=12, color="var(--ink)")
        layers = [name.encode(x=alt.XValue(0), y=alt.YValue(height + 22), text=alt.Text("text:N"))]
        if self.has_start:
            cut = alt.Chart(pd.DataFrame([{"x": round(0.58 * _BREAK, 4), "text": "//"}]))
            mark = cut.mark_text(baseline="middle", fontSize=11, color="var(--control)")
            at = {"x": self.channel(), "y": alt.YValue(height)}
            layers.append(mark.encode(**at, text=alt.Text("text:N"), opacity=opacity_if("clock === 0", 1, 0)))
        return layers

    def marker(self, series: list[str]) -> alt.Chart:
        """An upright line at the checkpoint that each of these lines has come to."""
        own = self.checkpoints[self.checkpoints["series"].isin(series)]
        rows = own.drop_duplicates("update") if len(self.names) == 1 else own
        base = timed(alt.Chart(rows[["series", "update"]]))
        return base.mark_rule(color="var(--soft)", strokeWidth=1).encode(x=self.channel(), opacity=at_now(0.8, 0))

    def finished(self, layers: list[alt.Chart], height: int, series: list[str], **start: Any) -> dict[str, Any]:
        """The chart's specification (see `finished`), with the axis's title."""
        return finished([*layers, *self.title(height)], height, **self.parameters(series), **start)


NOW = "datum.update <= now && now < places[datum.series][datum.update][length(places[datum.series][datum.update]) - 1]"
"""Whether a row is of the checkpoint that the page has come to: the last one of its line until then."""


def timed(chart: alt.Chart) -> alt.Chart:
    """A chart of rows with `series` and `update`, which get the place `x` on the clock that is shown."""
    return chart.transform_calculate(x="places[datum.series][datum.update][clock]")


def at_now(then: float, otherwise: float) -> alt.OpacityValue:
    return opacity_if(NOW, then, otherwise)


def short(value: float) -> str:
    """`5k`, `1.4M`."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _is_known(values: pd.Series) -> bool:
    return bool(np.isfinite(values.astype(float)).all()) and float(values.max()) > 0
