"""A value by layer with a line per frequency bin: the most frequent, the middle and the rarest, the others grey."""

from dataclasses import dataclass, replace
from typing import Any, final

import altair as alt
import pandas as pd

from .._theme import RANK_STEPS
from ._chart import HEIGHT, amount, bounded, color_if, finished, lit, tips, values_of
from ._frame import AbstractForm, Frame
from ._layer_chart import end_labels, layer_axis
from ._lines import SHARE, control_lines, hovered_layer, lines

_LABEL_GAP = 12.5  # pixels between direct labels
_NAMES, _MARKS = ("frequent", "middle", "rare"), ("circle", "square", "triangle-up")


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RankChart(AbstractForm):
    """The chart of one model's rows of `rank_curves`, from 0 to `top`: the largest value of all panels that share it.

    Of more than three bins, those between the first, the middle and the last one are thin grey lines: nobody tells
    eight shades apart.
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

    def within(self, frame: Frame) -> "RankChart":
        return replace(self, chosen=frame)

    @property
    def spec(self) -> dict[str, Any]:
        table, frame = bounded(self.table, SHARE), self.frame
        x = layer_axis(table, frame, self.x_title, self.transitions)
        at = {"x": x, "y": alt.Y(**amount("value", self.y_title, [frame.low, frame.high]))}
        bins, control = table[table["group"] == "bin"], table[table["group"] == "control"]
        named = _named(bins)
        color, shape = (
            channel(**values_of("ranks", list(named), values))
            for channel, values in ((alt.Color, _shades(named)), (alt.Shape, _MARKS))
        )
        tooltip = tips("ranks:N|frequency rank", "layer:Q|layer", "shown:N|value", "count:Q|occurrences|,")
        shown, rest = (bins[bins["ranks"].isin(named) == kept] for kept in (True, False))
        how: dict[str, Any] = {"band": 0.15, "width": 2.2, "size": 26, "touch": 120, "tooltip": tooltip}
        between = (
            lines(
                rest,
                at,
                {"detail": alt.Detail("ranks:N"), "color": alt.ColorValue("var(--control)")},
                light=lambda opacity=1.0: lit(0.45 * opacity),
                band=0,
                width=1,
                size=0,
                touch=120,
                tooltip=tooltip,
            )
            if len(rest)
            else []
        )
        beneath = control_lines(control, at, band=0)
        drawn = lines(shown, at, {"color": color, "shape": shape}, beneath=beneath, **how)
        hovered = hovered_layer(sorted(table["layer"].unique().tolist()), x)
        return finished([hovered, *between, *drawn, self._labels(shown, named, control, at, color)], HEIGHT)

    def _labels(
        self, bins: pd.DataFrame, named: dict[str, str], control: pd.DataFrame, at: dict[str, Any], color: alt.Color
    ) -> alt.Chart:
        """The name and the ranks of each named line at its right end."""
        last = int(bins["layer"].max())
        rows = bins[bins["layer"] == last].sort_values("rank_low")
        frame = rows[["ranks", "value", "series"]].rename(columns={"value": "at"}).assign(grey=False)
        frame["text"] = [f"{named[ranks]} {ranks}".strip() for ranks in frame["ranks"]]
        for end in control.loc[control["layer"] == last, "value"]:
            grey = {
                "text": self.control_name,
                "ranks": self.control_name,
                "at": float(end),
                "series": rows["series"].iloc[0],
                "grey": True,
            }
            frame = pd.concat([frame, pd.DataFrame([grey])], ignore_index=True)
        frame = frame.assign(layer=last)
        high = self.frame.high
        dimmed = color_if("datum.grey", "var(--soft)", color)
        look = {"dx": 7, "fontSize": 10.5, "limit": 110, "fontWeight": "normal"}
        return end_labels(frame, _LABEL_GAP / HEIGHT * high, high, at, dimmed, **look)


def _named(bins: pd.DataFrame) -> dict[str, str]:
    """The ranks of the bins that are named, from the most frequent, with their names; of up to three bins all."""
    ranks = list(dict.fromkeys(bins.sort_values("rank_low")["ranks"]))
    if len(ranks) < 3:
        return dict(zip(ranks, (_NAMES[0], _NAMES[-1]), strict=False))
    return dict(zip((ranks[0], ranks[len(ranks) // 2], ranks[-1]), _NAMES, strict=True))


def _shades(named: dict[str, str]) -> list[str]:
    """Steps of one ramp, the last for the rarest bin."""
    last = max(len(named) - 1, 1)
    return [f"var(--rank-{round(index * (RANK_STEPS - 1) / last)})" for index in range(len(named))]
