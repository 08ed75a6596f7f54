"""A value by layer with a line per frequency bin, from the most frequent tokens (pale) to the rarest (strong)."""

from dataclasses import dataclass, replace
from typing import Any, final

import altair as alt
import pandas as pd

from .._theme import RANK_STEPS
from ._chart import HEIGHT, amount, bounded, color_if, finished, tips, values_of
from ._frame import AbstractForm, Frame
from ._layer_chart import end_labels, layer_axis
from ._lines import SHARE, control_lines, hovered_layer, lines

_LABEL_GAP = 12.5  # pixels between direct labels


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RankChart(AbstractForm):
    """The chart of one model's rows of `rank_curves`, from 0 to `top`: the largest value of all panels compared."""

    table: pd.DataFrame
    y_title: str
    x_title: str
    control_name: str
    top: float
    transitions: bool = False  # the axis reads 0→1, 1→2, …
    chosen: Frame | None = None

    @property
    def frame(self) -> Frame:
        layers = [int(layer) for layer in self.table["layer"].unique()]
        return self.chosen or Frame(min(layers), max(layers), 0.0, 1.06 * self.top)

    @property
    def compared(self) -> bool:
        return True

    def within(self, frame: Frame) -> "RankChart":
        return replace(self, chosen=frame)

    @property
    def spec(self) -> dict[str, Any]:
        table, frame = bounded(self.table, SHARE), self.frame
        x = layer_axis(table, frame, self.x_title, self.transitions)
        at = {"x": x, "y": alt.Y(**amount("value", self.y_title, [frame.low, frame.high]))}
        bins, control = table[table["group"] == "bin"], table[table["group"] == "control"]
        color = _color_of(bins)
        tooltip = tips("ranks:N|frequency rank", "layer:Q|layer", "shown:N|value", "count:Q|occurrences|,")
        how: dict[str, Any] = {"band": 0.15, "width": 2, "size": 22, "touch": 120, "tooltip": tooltip}
        drawn = lines(bins, at, {"color": color}, beneath=control_lines(control, at, band=0), **how)
        hovered = hovered_layer(sorted(table["layer"].unique().tolist()), x)
        return finished([hovered, *drawn, self._labels(bins, control, at, color)], HEIGHT)

    def _labels(self, bins: pd.DataFrame, control: pd.DataFrame, at: dict[str, Any], color: alt.Color) -> alt.Chart:
        """The ranks of each line at its right end."""
        last = int(bins["layer"].max())
        rows = bins[bins["layer"] == last].sort_values("rank_low")
        frame = rows[["ranks", "value", "series"]].rename(columns={"ranks": "text", "value": "at"}).assign(grey=False)
        for end in control.loc[control["layer"] == last, "value"]:
            grey = {"text": self.control_name, "at": float(end), "series": rows["series"].iloc[0], "grey": True}
            frame = pd.concat([frame, pd.DataFrame([grey])], ignore_index=True)
        frame = frame.assign(layer=last, ranks=frame["text"])
        high = self.frame.high
        dimmed = color_if("datum.grey", "var(--soft)", color)
        look = {"dx": 7, "fontSize": 10.5, "limit": 90, "fontWeight": "normal"}
        return end_labels(frame, _LABEL_GAP / HEIGHT * high, high, at, dimmed, **look)


def _color_of(bins: pd.DataFrame) -> alt.Color:
    """Steps of one ramp, the last for the rarest bin."""
    ranks = list(dict.fromkeys(bins.sort_values("rank_low")["ranks"]))
    steps = [round(index * (RANK_STEPS - 1) / max(len(ranks) - 1, 1)) for index in range(len(ranks))]
    return alt.Color(**values_of("ranks", ranks, [f"var(--rank-{step})" for step in steps]))
