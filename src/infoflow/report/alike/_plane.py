"""The picture of a map: points at their places with their names, the same scale across and upwards."""

from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._numbers import number
from .._series import Series
from ..forms._chart import NAME, color_of, finished, lit, shape_of, tips
from ._placing import place_names

_WIDTH, _HEIGHT = 252, 340  # pixels in which points and names have room; a wider panel has air at its sides
_MARGIN = 22
MEAN = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaneView:
    """What a picture shows of the plane: its centre, and pixels per unit of distance."""

    x: float
    y: float
    pixels: float

    @classmethod
    def around(cls, rows: pd.DataFrame) -> "PlaneView":
        """All of these points."""
        low, high = rows[["x", "y"]].min(), rows[["x", "y"]].max()
        spans = high - low
        room = (_WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN - 20)
        pixels = min(side / max(span, 1e-9) for side, span in zip(room, spans, strict=True))
        return cls(x=float(low["x"] + high["x"]) / 2, y=float(low["y"] + high["y"]) / 2, pixels=min(pixels, 1e6))

    def at(self, rows: pd.DataFrame) -> np.ndarray:
        """Points in pixels, y downwards."""
        x = _WIDTH / 2 + (rows["x"] - self.x) * self.pixels
        y = _HEIGHT / 2 - (rows["y"] - self.y) * self.pixels
        return np.stack([x, y], axis=1)

    def back(self, x: float, y: float) -> tuple[float, float]:
        """A place in pixels as a point of the plane."""
        return self.x + (x - _WIDTH / 2) / self.pixels, self.y - (y - _HEIGHT / 2) / self.pixels

    @property
    def axes(self) -> dict[str, Any]:
        """The encodings of place: upwards fixed, across as much as the panel is wide."""
        half = _HEIGHT / 2 / self.pixels
        ends = {
            name: alt.ExprRef(f"{self.x} {sign} width / {2 * self.pixels}")
            for name, sign in (("domainMin", "-"), ("domainMax", "+"))
        }
        across = alt.Scale(**ends, nice=False, zero=False)
        upwards = alt.Scale(domain=[self.y - half, self.y + half], nice=False, zero=False)
        return {"x": alt.X("x:Q", axis=None, scale=across), "y": alt.Y("y:Q", axis=None, scale=upwards)}


def map_chart(rows: pd.DataFrame, series: list[Series], view: PlaneView, grey: bool = False) -> dict[str, Any]:
    """Rows of the mean (`seed` −1) and of each seed, with `series`, `label`, and of the nearest neighbour `to_x`,
    `to_y`; `grey`: a control, without names."""
    mean, seeds = rows[rows["seed"] == MEAN], rows[rows["seed"] != MEAN]
    axes = view.axes
    links = alt.Chart(mean[["x", "y", "to_x", "to_y"]])
    layers = [
        links.mark_rule(color="var(--control)", strokeWidth=1, opacity=0.5).encode(
            **axes, x2=alt.X2("to_x:Q"), y2=alt.Y2("to_y:Q")
        )
    ]
    if grey:
        marks = alt.Chart(mean).mark_point(shape="cross", size=40, color="var(--control)", filled=True)
        layers.append(marks.encode(**axes, tooltip=_TIPS))
        return finished([*layers, *_measure(view, rows)], _HEIGHT)
    look = {"color": color_of(series), "shape": shape_of(series)}
    if len(seeds):
        layers += _seeds(mean, seeds, axes, look)
    layers += _names(mean, view, look["color"])
    layers.append(alt.Chart(mean).mark_point(filled=True, size=70, opacity=1).encode(**axes, **look, tooltip=_TIPS))
    return finished([*layers, *_measure(view, rows)], _HEIGHT)


_TIPS = tips("label:N|objective", "family:N|family", "nearest_label:N|nearest", "distance:N|at the distance")


def _seeds(mean: pd.DataFrame, seeds: pd.DataFrame, axes: dict[str, Any], look: dict[str, Any]) -> list[alt.Chart]:
    """Small marks of each seed, tied to their mean."""
    centres = mean.set_index("series")[["x", "y"]].rename(columns={"x": "to_x", "y": "to_y"})
    tied = seeds[["series", "x", "y"]].join(centres, on="series")
    base = alt.Chart(tied)
    return [
        base.mark_rule(strokeWidth=1).encode(
            **axes, x2=alt.X2("to_x:Q"), y2=alt.Y2("to_y:Q"), color=look["color"], opacity=lit(0.5)
        ),
        base.mark_point(filled=True, size=12).encode(**axes, color=look["color"], opacity=lit(0.8)),
    ]


def _names(mean: pd.DataFrame, view: PlaneView, color: Any) -> list[alt.Chart]:
    """Each point's name, with a line where it cannot stand beside it."""
    places = place_names(view.at(mean), mean["label"].tolist(), _WIDTH, _HEIGHT - 20)
    found = []
    for row, place in zip(mean.to_dict("records"), places, strict=True):
        x, y = view.back(place.x, place.y)
        end = view.back(place.x - (3 if place.to_right else -3), place.y)
        ends = {"x": x, "y": y, "from_x": row["x"], "from_y": row["y"], "end_x": end[0], "end_y": end[1]}
        found.append(
            {**ends, "series": row["series"], "label": row["label"], "right": place.to_right, "led": place.led}
        )
    table, axes = pd.DataFrame(found), view.axes
    layers = []
    led = table[table["led"]]
    if len(led):
        lines = led[["series", "from_x", "from_y", "end_x", "end_y"]].rename(columns={"from_x": "x", "from_y": "y"})
        rules = alt.Chart(lines).mark_rule(strokeWidth=0.8)
        layers.append(rules.encode(**axes, x2=alt.X2("end_x:Q"), y2=alt.Y2("end_y:Q"), color=color, opacity=lit(0.6)))
    for right, align in ((True, "left"), (False, "right")):
        own = table[table["right"] == right]
        if len(own):
            texts = alt.Chart(own[["x", "y", "series", "label"]]).mark_text(align=align, baseline="middle", **NAME)
            layers.append(texts.encode(**axes, text=alt.Text("label:N"), color=color, opacity=lit(1.0, 0.2)))
    return layers


def _measure(view: PlaneView, rows: pd.DataFrame) -> list[alt.Chart]:
    """A line of a round length: axes mean nothing, distances do."""
    wanted = 70 / view.pixels
    length = next(
        (step for step in (m * 10.0**e for e in range(2, -10, -1) for m in (5, 2, 1)) if step <= wanted), wanted
    )
    (left, y), (right, _) = view.back(8, _HEIGHT - 8), view.back(8 + length * view.pixels, _HEIGHT - 8)
    axes = view.axes
    line = alt.Chart(pd.DataFrame([{"x": left, "y": y, "to_x": right}]))
    text = alt.Chart(pd.DataFrame([{"x": right, "y": y, "text": number(length)}]))
    return [
        line.mark_rule(color="var(--soft)", strokeWidth=1.4).encode(**axes, x2=alt.X2("to_x:Q")),
        text.mark_text(align="left", dx=5, baseline="middle", color="var(--soft)").encode(
            **axes, text=alt.Text("text:N")
        ),
    ]
