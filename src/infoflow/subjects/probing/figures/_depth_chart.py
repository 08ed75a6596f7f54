"""Rows of tasks over layers: bars of mixing weights and score differences, and each task's depth."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import pandas as pd

from infoflow.report._theme import Series
from infoflow.report.forms._chart import CONTROL, NAME, AbstractForm, Frame, finished, lit, tips, with_field
from infoflow.report.forms._lines import names_above
from infoflow.report.forms._marks import Channel, Constant, Layer, channel, draw, point_style

_ROW = 54  # pixels per row
_ZERO, _ABOVE, _BELOW = 0.70, 0.60, 0.26  # position of a row's zero line, and the part of the row for its bars
_HALF = 0.36  # share of a layer's width
NEGATIVE = "var(--series-5)"
WARNING = "⚠"


def task_axis(labels: Sequence[str]) -> Channel:
    """A row of height 1 per label, from the top."""
    names = f"{json.dumps([str(label) for label in labels])}[floor(datum.value)]"
    axis = {
        "values": [index + 0.5 for index in range(len(labels))],
        "labelExpr": names,
        "labelLimit": 150,
        "grid": False,
        "domain": False,
        "ticks": False,
    }
    return channel("y", "y:Q", title=None, axis=axis, scale={"domain": [len(labels), 0], "nice": False, "zero": False})


def depth_axis(frame: Frame) -> Channel:
    layers = list(range(frame.first, frame.last + 1))
    axis = {"values": layers[:: -(-len(layers) // 13)], "format": "d", "grid": False, "labelOverlap": False}
    scale = {"domain": [frame.first - 0.6, frame.last + 0.6], "nice": False, "zero": False}
    return channel("x", "layer:Q", title="layer (0 = embeddings)", axis=axis, scale=scale)


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MixingBars(AbstractForm):
    """One model's bars: filled, left of each layer, its weight; outlined, right of it, the layer's gain.

    The table has `label`, `layer`, `what` ("weight" or "delta"), `value`, `low`, `high` and `shown`. Weights share one
    scale, `most`; differences fill the row of their task.
    """

    table: pd.DataFrame
    labels: list[str]
    notes: dict[str, str]  # label → note next to its row
    series: Series
    most: float
    chosen: Frame | None = None

    @property
    def frame(self) -> Frame:
        layers = self.table["layer"]
        return self.chosen or Frame(int(layers.min()), int(layers.max()), 0.0, 1.0)

    @property
    def spec(self) -> dict[str, Any]:
        frame = self.frame
        x, y = depth_axis(frame), task_axis(self.labels)
        bars = self._bars()
        weights, deltas = (bars[bars["what"] == what] for what in ("weight", "delta"))
        zeros = pd.DataFrame({"y": [index + _ZERO for index in range(len(self.labels))]})
        rule = draw("rule", zeros, color="var(--grid)", strokeWidth=1, y=y)
        gains, losses = deltas[deltas["value"] >= 0], deltas[deltas["value"] < 0]
        outline = {"filled": False, "stroke": "var(--soft)", "strokeWidth": 1.2}
        filled = {"color": self.series.color, "opacity": 0.9}
        styles = ((weights, filled), (gains, outline), (losses, {"color": NEGATIVE}))
        drawn = [self._rects(rows, look, x, y) for rows, look in styles]
        names = [
            ("■", "weight in the mix", self.series.color),
            ("□", "added to F1", "var(--soft)"),
            ("■", "lost", NEGATIVE),
        ]
        known = bars.dropna(subset=["low", "high"])[["middle", "up", "down"]]
        ends = {"x": with_field(x, "middle"), "y": with_field(y, "up"), "y2": "down:Q"}
        whiskers = draw("rule", known, ends, color="var(--ink)", strokeWidth=0.8, opacity=0.75)
        notes = [
            {"layer": frame.last + 0.6, "y": index + _ZERO - 0.42 + 0.26 * line, "text": text}
            for index, name in enumerate(self.labels)
            for line, text in enumerate(self.notes.get(name, "").split("\n"))
            if text
        ]
        look = {"align": "left", "dx": 6, "fontSize": 10, "color": "var(--soft)", "x": x, "y": y}
        marks = [rule, *drawn, whiskers, draw("text", pd.DataFrame(notes), look, text="text:N"), names_above(names)]
        return finished(marks, _ROW * len(self.labels) + 8)

    def _bars(self) -> pd.DataFrame:
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
        """Row height of a difference of 1, chosen so that all differences fit with their intervals."""
        deltas = own.loc[own["what"] == "delta", ["value", "low", "high"]]
        up, down = max(float(deltas.max().max()), 0.0), max(float(-deltas.min().min()), 0.0)
        units = [room / size for room, size in ((_ABOVE, up), (_BELOW, down)) if size > 0]
        return min(units, default=0.0)

    def _rects(self, rows: pd.DataFrame, look: dict[str, Any], x: Channel, y: Channel) -> Layer:
        tooltip = tips("label:N|task", "layer:Q|layer", "name:N|", "shown:N|value")
        own = rows[["label", "layer", "name", "shown", "x1", "x2", "y", "top"]]
        light = {} if "opacity" in look else {"opacity": lit(of=self.series)}
        return draw("rect", own, look, light, x=with_field(x, "x1"), x2="x2:Q", y=y, y2="top:Q", tooltip=tooltip)


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DepthDots(AbstractForm):
    """Depth of each task of one model: expected layer above, centre of gravity below, untrained in grey.

    The table has `label`, `what` ("expected" or "gravity"), `group`, `value`, `low`, `high`, `seeds`, `warning` and
    `shown`. Values outside the layers are drawn at the edge, with an arrow.
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
    def spec(self) -> dict[str, Any]:
        frame = self.frame
        x, y = depth_axis(frame), task_axis(self.labels)
        dots = self._dots(frame)
        trained, untrained = dots[dots["group"] == "trained"], dots[dots["group"] == "untrained"]
        lines = pd.DataFrame({"y": [float(index) for index in range(1, len(self.labels))]})
        grey = {"color": CONTROL["color"], "size": 26, "filled": True, "opacity": 0.8}
        layers = [draw("rule", lines, color="var(--grid)", y=y)]
        for what, shape in _SHAPES.items():
            own = untrained[untrained["what"] == what]
            layers.append(draw("point", own, grey, shape=shape, x=x, y=y, tooltip=_dot_tips()))
        layers += [layer for what in _SHAPES for layer in self._marks(trained[trained["what"] == what], what, x, y)]
        found = [("●", "expected layer", "expected"), ("◆", "centre of gravity", "gravity")]
        names = [(mark, name, self.series.color) for mark, name, what in found if bool((trained["what"] == what).any())]
        names += [("●", "untrained", "var(--control)")] if len(untrained) else []
        names += [("", "", "var(--soft)")] * (3 - len(names))  # same number of rows as the adjacent bars
        ill_defined = trained[trained["warning"] != ""].assign(text=WARNING)
        sign = {"fontSize": 13, "color": "var(--series-5)", "dy": -11, "tooltip": tips("label:N", "warning:N")}
        notes = [
            {"layer": frame.last + 0.6, "y": index + 0.5, "text": self.notes[name]}
            for index, name in enumerate(self.labels)
            if self.notes.get(name)
        ]
        note = {**NAME, "align": "left", "dx": 6, "fontWeight": "normal", "color": Constant("var(--soft)")}
        layers += [
            draw("text", ill_defined, sign, x=x, y=y, text="text:N"),
            draw("text", pd.DataFrame(notes), note, x=x, y=y, text="text:N"),
        ]
        return finished([*layers, names_above(names)], _ROW * len(self.labels) + 8)

    def _dots(self, frame: Frame) -> pd.DataFrame:
        row = self.table["label"].map({name: at for at, name in enumerate(self.labels)})
        place = row + self.table["what"].map({"expected": 0.36, "gravity": 0.66})
        low, high = frame.first - 0.5, frame.last + 0.5
        ends = {end: self.table[end].clip(low, high) for end in ("low", "high")}
        beyond = self.table["value"].clip(low, high) != self.table["value"]
        return self.table.assign(y=place, layer=self.table["value"].clip(low, high), beyond=beyond, **ends).round(4)

    def _marks(self, rows: pd.DataFrame, what: str, x: Channel, y: Channel) -> list[Layer]:
        known = rows.loc[rows[["low", "high"]].notna().all(axis=1), ["low", "high", "y"]]
        look = {"color": self.series.color, "y": y, "opacity": lit(of=self.series)}
        ends = {"x": with_field(x, "low"), "x2": "high:Q", "strokeWidth": 2}
        mark = {"x": x, "shape": _SHAPES[what], "size": 62, "tooltip": _dot_tips()}
        return [draw("rule", known, look, ends), draw("point", rows, point_style(rows), look, mark)]


_SHAPES = {"expected": "circle", "gravity": "diamond"}


def _dot_tips() -> list[Channel]:
    return tips("label:N|task", "name:N|", "shown:N|layer", "group:N|model", "warning:N|warning")
