"""Rows of tasks over layers: bars of mixing weights and score differences, and where in depth each task lies."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import altair as alt
import pandas as pd

from .._series import Series
from ..forms._chart import CONTROL, NAME, finished, lit, tips
from ..forms._frame import AbstractForm, Frame
from ..forms._hollow import point_style
from ..forms._names import names_above

_ROW = 54  # pixels of a row
_ZERO, _ABOVE, _BELOW = 0.70, 0.60, 0.26  # where a row's zero line is, and what of the row its bars may take
_HALF = 0.36  # of a layer's width
NEGATIVE = "var(--series-5)"
WARNING = "⚠"


def task_axis(labels: Sequence[str]) -> alt.Y:
    """A row of height 1 for each label, from the top."""
    names = f"{json.dumps([str(label) for label in labels])}[floor(datum.value)]"
    axis = alt.Axis(
        values=[place + 0.5 for place in range(len(labels))],
        labelExpr=names,
        labelLimit=150,
        grid=False,
        domain=False,
        ticks=False,
    )
    return alt.Y("y:Q", title=None, axis=axis, scale=alt.Scale(domain=[len(labels), 0], nice=False, zero=False))


def depth_axis(frame: Frame, title: str = "layer (0 = embeddings)") -> alt.X:
    layers = list(range(frame.first, frame.last + 1))
    axis = alt.Axis(values=layers[:: -(-len(layers) // 13)], format="d", grid=False, labelOverlap=False)
    scale = alt.Scale(domain=[frame.first - 0.6, frame.last + 0.6], nice=False, zero=False)
    return alt.X("layer:Q", title=title, axis=axis, scale=scale)


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MixingBars(AbstractForm):
    """One model's bars: filled, to the left of each layer, its weight; outlined, to the right, what the layer adds.

    The table has `label`, `layer`, `what` ("weight" or "delta"), `value`, `low`, `high` and `shown`. Weights have one
    scale, `most`; differences fill the row of their task.
    """

    table: pd.DataFrame
    labels: list[str]
    notes: dict[str, str]  # label → what stands beside its row
    series: Series
    most: float
    chosen: Frame | None = None

    @property
    def frame(self) -> Frame:
        layers = self.table["layer"]
        return self.chosen or Frame(int(layers.min()), int(layers.max()), 0.0, 1.0)

    @property
    def compared(self) -> bool:
        return False

    def within(self, frame: Frame) -> "MixingBars":
        return replace(self, chosen=frame)

    @property
    def spec(self) -> dict[str, Any]:
        frame = self.frame
        x, y = depth_axis(frame), task_axis(self.labels)
        bars = self._bars()
        weights, deltas = (bars[bars["what"] == what] for what in ("weight", "delta"))
        zeros = pd.DataFrame({"y": [place + _ZERO for place in range(len(self.labels))]})
        rule = alt.Chart(zeros).mark_rule(color="var(--grid)", strokeWidth=1).encode(y=y)
        gains, losses = deltas[deltas["value"] >= 0], deltas[deltas["value"] < 0]
        outline = {"filled": False, "stroke": "var(--soft)", "strokeWidth": 1.2}
        filled = {"color": self.series.color, "opacity": 0.9}
        styles = ((weights, filled), (gains, outline), (losses, {"color": NEGATIVE}))
        drawn = [self._rects(rows, look, x, y) for rows, look in styles if len(rows)]
        names = [
            ("■", "weight in the mix", self.series.color),
            ("□", "added to F1", "var(--soft)"),
            ("■", "lost", NEGATIVE),
        ]
        marks = [rule, *drawn, *self._whiskers(bars, x, y), *self._notes(frame, x, y), names_above(names)]
        return finished(marks, self._height)

    @property
    def _height(self) -> int:
        return _ROW * len(self.labels) + 8

    def _bars(self) -> pd.DataFrame:
        """Where each bar begins and ends, and the ends of its interval."""
        rows = self.table.assign(row=self.table["label"].map({name: at for at, name in enumerate(self.labels)}))
        scale = rows["label"].map({name: self._unit(own) for name, own in rows.groupby("label")})
        scale = scale.where(rows["what"] == "delta", _ABOVE / self.most)
        zero, left = rows["row"] + _ZERO, rows["what"] == "weight"
        lifted = {
            end: zero - (rows[of] * scale).clip(-_BELOW, _ABOVE)
            for end, of in (("top", "value"), ("up", "high"), ("down", "low"))
        }
        begin = rows["layer"].where(~left, rows["layer"] - _HALF)
        end = rows["layer"].where(left, rows["layer"] + _HALF)
        return rows.assign(y=zero, x1=begin, x2=end, middle=(begin + end) / 2, **lifted).round(4)

    @staticmethod
    def _unit(own: pd.DataFrame) -> float:
        """What of a row a difference of 1 takes, so that all of them find room with their intervals."""
        deltas = own.loc[own["what"] == "delta", ["value", "low", "high"]]
        up, down = max(float(deltas.max().max()), 0.0), max(float(-deltas.min().min()), 0.0)
        units = [room / size for room, size in ((_ABOVE, up), (_BELOW, down)) if size > 0]
        return min(units, default=0.0)

    def _rects(self, rows: pd.DataFrame, look: dict[str, Any], x: alt.X, y: alt.Y) -> alt.Chart:
        across = x.copy()
        across.shorthand = "x1:Q"
        tooltip = tips("label:N|task", "layer:Q|layer", "name:N|", "shown:N|value")
        own = rows[["label", "layer", "name", "shown", "x1", "x2", "y", "top"]]
        light = {} if "opacity" in look else {"opacity": lit(of=self.series)}
        return (
            alt.Chart(own)
            .mark_rect(**look)
            .encode(x=across, x2=alt.X2("x2:Q"), y=y, y2=alt.Y2("top:Q"), tooltip=tooltip, **light)
        )

    @staticmethod
    def _whiskers(bars: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
        known = bars.dropna(subset=["low", "high"])[["middle", "up", "down"]]
        if known.empty:
            return []
        across, up = x.copy(), y.copy()
        across.shorthand, up.shorthand = "middle:Q", "up:Q"
        mark = alt.Chart(known).mark_rule(color="var(--ink)", strokeWidth=0.8, opacity=0.75)
        return [mark.encode(x=across, y=up, y2=alt.Y2("down:Q"))]

    def _notes(self, frame: Frame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
        rows = [
            {"layer": frame.last + 0.6, "y": place + _ZERO - 0.42 + 0.26 * line, "text": text}
            for place, name in enumerate(self.labels)
            for line, text in enumerate(self.notes.get(name, "").split("\n"))
            if text
        ]
        if not rows:
            return []
        mark = alt.Chart(pd.DataFrame(rows)).mark_text(align="left", dx=6, fontSize=10, color="var(--soft)")
        return [mark.encode(x=x, y=y, text=alt.Text("text:N"))]


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DepthDots(AbstractForm):
    """Where in depth each task of one model lies: expected layer above, centre of gravity below, untrained in grey.

    The table has `label`, `what` ("expected" or "gravity"), `group`, `value`, `low`, `high`, `seeds`, `warning` and
    `shown`. What lies outside the layers is drawn at the edge, with an arrow.
    """

    table: pd.DataFrame
    labels: list[str]
    notes: dict[str, str]
    series: Series
    last: int
    chosen: Frame | None = None

    @property
    def frame(self) -> Frame:
        return self.chosen or Frame(0, self.last, 0.0, 1.0)

    @property
    def compared(self) -> bool:
        return False

    def within(self, frame: Frame) -> "DepthDots":
        return replace(self, chosen=frame)

    @property
    def spec(self) -> dict[str, Any]:
        frame = self.frame
        x, y = depth_axis(frame), task_axis(self.labels)
        dots = self._dots(frame)
        trained, untrained = dots[dots["group"] == "trained"], dots[dots["group"] == "untrained"]
        lines = pd.DataFrame({"y": [float(place) for place in range(1, len(self.labels))]})
        layers: list[alt.Chart] = [alt.Chart(lines).mark_rule(color="var(--grid)").encode(y=y)] if len(lines) else []
        if len(untrained):
            grey = {"color": CONTROL["color"], "size": 26, "filled": True, "opacity": 0.8}
            layers += [
                alt.Chart(untrained[untrained["what"] == what])
                .mark_point(shape=shape, **grey)
                .encode(x=x, y=y, tooltip=_dot_tips())
                for what, shape in _SHAPES.items()
            ]
        layers += [layer for what in _SHAPES for layer in self._marks(trained[trained["what"] == what], what, x, y)]
        found = [("●", "expected layer", "expected"), ("◆", "centre of gravity", "gravity")]
        names = [(mark, name, self.series.color) for mark, name, what in found if bool((trained["what"] == what).any())]
        names += [("●", "untrained", "var(--control)")] if len(untrained) else []
        names += [("", "", "var(--soft)")] * (3 - len(names))  # as many rows as the bars beside have
        marks = [*layers, *self._signs(trained, x, y), *self._texts(frame, x, y), names_above(names)]
        return finished(marks, _ROW * len(self.labels) + 8)

    def _dots(self, frame: Frame) -> pd.DataFrame:
        row = self.table["label"].map({name: at for at, name in enumerate(self.labels)})
        place = row + self.table["what"].map({"expected": 0.36, "gravity": 0.66})
        low, high = frame.first - 0.5, frame.last + 0.5
        ends = {end: self.table[end].clip(low, high) for end in ("low", "high")}
        beyond = self.table["value"].clip(low, high) != self.table["value"]
        return self.table.assign(y=place, layer=self.table["value"].clip(low, high), beyond=beyond, **ends).round(4)

    def _marks(self, rows: pd.DataFrame, what: str, x: alt.X, y: alt.Y) -> list[alt.Chart]:
        """Interval and mark."""
        if rows.empty:
            return []
        ends, light = x.copy(), lit(of=self.series)
        ends.shorthand = "low:Q"
        known = rows.dropna(subset=["low", "high"])
        whisker = alt.Chart(known[["low", "high", "y"]]).mark_rule(strokeWidth=2, color=self.series.color)
        marks = alt.Chart(rows).mark_point(shape=_SHAPES[what], size=62, color=self.series.color, **point_style(rows))
        return [
            *([whisker.encode(x=ends, x2=alt.X2("high:Q"), y=y, opacity=light)] if len(known) else []),
            marks.encode(x=x, y=y, opacity=light, tooltip=_dot_tips()),
        ]

    @staticmethod
    def _signs(rows: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
        """A warning beside what is ill-defined."""
        marked = rows[rows["warning"] != ""]
        if marked.empty:
            return []
        base = alt.Chart(marked.assign(text=WARNING))
        look = {"fontSize": 13, "color": "var(--series-5)", "dy": -11}
        return [base.mark_text(**look).encode(x=x, y=y, text=alt.Text("text:N"), tooltip=tips("label:N", "warning:N"))]

    def _texts(self, frame: Frame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
        rows = [
            {"layer": frame.last + 0.6, "y": place + 0.5, "text": self.notes[name]}
            for place, name in enumerate(self.labels)
            if self.notes.get(name)
        ]
        if not rows:
            return []
        mark = alt.Chart(pd.DataFrame(rows)).mark_text(align="left", dx=6, **{**NAME, "fontWeight": "normal"})
        return [mark.encode(x=x, y=y, text=alt.Text("text:N"), color=alt.ColorValue("var(--soft)"))]


_SHAPES = {"expected": "circle", "gravity": "diamond"}


def _dot_tips() -> list[alt.Tooltip]:
    return tips("label:N|task", "name:N|", "shown:N|layer", "group:N|model", "warning:N|warning")
