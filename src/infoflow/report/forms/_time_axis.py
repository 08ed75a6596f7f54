"""The training axis: updates on a log scale with 0 left of a break, or tokens, progress, learning rate.

A chart carries the positions of its checkpoints on every clock, as shares of the axis; the page sets `clock` to the
shown clock, and `now` to the current update.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ._chart import finished, opacity_if
from ._marks import Channel, Constant, Layer, Rows, calculated, channel, draw, expression, filtered

CLOCKS = {
    "update": "updates",
    "tokens": "tokens that the loss looked at",
    "progress": "share of all updates",
    "lr_share": "share of the summed learning rate",
}
"""Column of a checkpoint → title of the axis."""
_BREAK = 0.08  # share of the axis left of the first update
_END = 0.02  # share of the axis before the first and after the last checkpoint


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TimeAxis:
    """Times of each line's checkpoints, on every clock that is known for all of them."""

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
        """Which rows are at suspect checkpoints; these are drawn hollow."""
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
        """(update, clock): shares of the axis; tokens and learning-rate sums are interpolated between checkpoints."""
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
        """Add fields to the rows: the position of an update column on the shown clock.

        Args:
            rows: Rows of `series`, or rows with that column.
            series: The line.
            fields: Field → column of updates; a field of the same name replaces the column.
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
        """Parameters that let a chart of these lines follow the page: see `timed`."""
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
        told = [{"clock": number, "text": CLOCKS[name]} for number, name in enumerate(self.names)]
        base = filtered(pd.DataFrame(told), "datum.clock === clock")
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
        return draw("rule", base, color="var(--soft)", strokeWidth=1, x=self.channel(), opacity=at_now(0.8, 0))

    def finished(self, layers: list[Layer], height: int, series: list[str], **start: Any) -> dict[str, Any]:
        """The chart specification (see `finished`), with the axis title."""
        return finished([*layers, *self.title(height)], height, **self.parameters(series), **start)


NOW = "datum.update <= now && now < places[datum.series][datum.update][length(places[datum.series][datum.update]) - 1]"
"""Whether a row is at the page's current checkpoint: the last one of its line up to that update."""


def timed(rows: Rows) -> Layer:
    """Rows with `series` and `update`; adds their position `x` on the shown clock."""
    return calculated(rows, x="places[datum.series][datum.update][clock]")


def at_now(then: float, otherwise: float) -> Channel:
    return opacity_if(NOW, then, otherwise)


def short(value: float) -> str:
    """`5k`, `1.4M`."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _is_known(values: pd.Series) -> bool:
    return bool(np.isfinite(values.astype(float)).all()) and float(values.max()) > 0
