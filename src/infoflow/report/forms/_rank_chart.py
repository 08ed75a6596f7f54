"""A value by layer with one line per frequency bin: the most frequent, middle and rarest in colour, others grey."""

from dataclasses import dataclass
from typing import Any, final

import pandas as pd

from .._theme import RANK_STEPS
from ._chart import HEIGHT, amount, bounded, by_key, color_if, finished, lit, tips
from ._frame import AbstractForm, Frame
from ._layer_chart import end_labels, layer_axis
from ._lines import SHARE, control_lines, hovered_layer, lines
from ._marks import Channel, Constant, Layer

_LABEL_GAP = 12.5  # pixels between direct labels
_NAMES, _MARKS = ("frequent", "middle", "rare"), ("circle", "square", "triangle-up")


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RankChart(AbstractForm):
    """The chart of one model's `rank_curves`, from 0 to `top`, the largest value of the panels that share it.

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
            for name, values in (("color", _shades(named)), ("shape", _MARKS))
        )
        tooltip = tips("ranks:N|frequency rank", "layer:Q|layer", "shown:N|value", "count:Q|occurrences|,")
        shown, rest = (bins[bins["ranks"].isin(named) == kept] for kept in (True, False))
        how: dict[str, Any] = {"touch": 120, "tooltip": tooltip}
        thin = {"light": lambda opacity=1.0: lit(0.45 * opacity), "band": 0, "width": 1, "size": 0}
        grey = {"detail": "ranks:N", "color": Constant("var(--control)")}
        between = lines(rest, at, grey, **thin, **how) if len(rest) else []
        beneath = control_lines(control, at, band=0)
        drawn = lines(shown, at, {"color": color, "shape": shape}, beneath=beneath, band=0.15, size=26, **how)
        hovered = hovered_layer(sorted(table["layer"].unique().tolist()), x)
        return finished([hovered, *between, *drawn, self._labels(shown, named, control, at, color)], HEIGHT)

    def _labels(
        self, bins: pd.DataFrame, named: dict[str, str], control: pd.DataFrame, at: dict[str, Any], color: Channel
    ) -> Layer:
        """Name and ranks of each labelled line at its right end."""
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


def _shades(named: dict[str, str]) -> list[str]:
    """Steps of one colour ramp; the last is for the rarest bin."""
    last = max(len(named) - 1, 1)
    return [f"var(--rank-{round(index * (RANK_STEPS - 1) / last)})" for index in range(len(named))]
