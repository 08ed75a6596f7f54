"""Squares of tasks and layers: the stronger the colour, the more of a task is read from the layer."""

from dataclasses import dataclass, replace
from typing import Any, final

import altair as alt
import pandas as pd

from ..forms._chart import color_if, finished, opacity_if, tips
from ..forms._frame import AbstractForm, Frame
from ..forms._grid import cells, squares

_ROW = 26  # pixels of a row
_NUMBER = 19  # pixels of a square that has room for its number
_GAP, _UNTRAINED = "", "untr."
_FRAME = (("paper", 3.4), ("ink", 1.5))


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TaskMap(AbstractForm):
    """One model's tasks from top to bottom, its layers across, and beside them the best layer of an untrained one.

    The table has `label`, `layer`, `share`, `best`, `shown`, and `untrained`, whose rows have the layer that is best.
    """

    table: pd.DataFrame
    labels: list[str]  # from top to bottom, of all panels that stand side by side
    chosen: Frame | None = None

    @property
    def frame(self) -> Frame:
        layers = self.table.loc[~self.table["untrained"], "layer"]
        return self.chosen or Frame(int(layers.min()), int(layers.max()), 0.0, 1.0)

    @property
    def compared(self) -> bool:
        return False

    def within(self, frame: Frame) -> "TaskMap":
        return replace(self, chosen=frame)

    @property
    def spec(self) -> dict[str, Any]:
        frame, beside = self.frame, bool(self.table["untrained"].any())
        layers = [str(layer) for layer in range(frame.first, frame.last + 1)]
        place = self.table["layer"].astype(int).astype(str).where(~self.table["untrained"], _UNTRAINED)
        rows = self.table[["label", "share", "shown", "best", "untrained", "layer"]].assign(
            place=place, text=[f"{100 * share:.0f}" for share in self.table["share"]]
        )
        order = [*layers, *([_GAP, _UNTRAINED] if beside else [])]
        roomy = f"width >= {_NUMBER * len(order)} || isNaN(datum.value)"
        names = f"{roomy} || datum.value % 2 === 0 ? datum.label : ''"
        x = cells(alt.X, "place", "layer (0 = embeddings)", order, labelOverlap=False, labelExpr=names)
        x["scale"] = alt.Scale(domain=order)
        y = cells(alt.Y, "label", None, self.labels, labelLimit=150)
        y["scale"] = alt.Scale(domain=self.labels)
        marks = squares(
            alt.Chart(rows.round({"share": 3})),
            x,
            y,
            "share",
            color=color_if("datum.untrained", "var(--control)", "var(--heat-2)"),
            size=9.5,
            exponent=3,
            tooltip=tips(
                "label:N|task", "layer:O|layer", "shown:N|accuracy", "share:Q|share of what can be gained|.2f"
            ),
        )
        marks[-1] = marks[-1].encode(opacity=opacity_if(f"width >= {_NUMBER * len(order)}", 1, 0))
        marks[1:1] = self._frames(rows, x, y)
        return finished(marks, _ROW * len(self.labels) + 4)

    def _frames(self, rows: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
        """A light line around a dark one: seen on pale and on strong squares."""
        framed = alt.Chart(rows[rows["best"]])
        return [
            framed.mark_rect(filled=False, stroke=f"var(--{name})", strokeWidth=width).encode(x=x, y=y)
            for name, width in _FRAME
        ]
