"""The information plane: each layer's information about its input and its output, as paths through training."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Panel
from infoflow.report._in_words import listed, number
from infoflow.report.forms._chart import HEIGHT, amount, finished, tips
from infoflow.report.forms._marks import Constant, draw, expression, span
from infoflow.report.forms._over_time import HOLLOW_MARK, TOUCH, TimeAxis, at_now, layer_color, layer_legend
from infoflow.report.knows._convergence import INFORMATION_METHOD
from infoflow.representations import MUTUAL_INFORMATION as MUTUAL_INFORMATION_TABLE

from ._course import CheckpointTables, checkpoints_note, main_stack, means

_REGIMES = {"clean": "", "training": ", corrupted as in training"}
_ANGLE = (
    "atan2(scale('y', datum.to_output) - scale('y', datum.output), "
    "scale('x', datum.to_input) - scale('x', datum.input)) * 180 / PI + 90"
)
_SHORTEST = 0.04  # minimum length of a step with an arrow, as a share of the axes
CAVEAT = (
    "A path that turns back to the left is no evidence of “compression”: whether the information plane shows "
    "such a phase depends on the activation function and on the estimator (Shwartz-Ziv and Tishby 2017; Saxe et "
    "al. 2018), and falling values of clustered states can reflect geometry as well as a loss of information. No "
    "finding here claims compression."
)


def _information(course: CheckpointTables) -> Drawn | None:
    """One panel per model and regime whose two sides differ."""
    table = _table(course)
    if table.empty:
        return None
    shown = [
        (f"{series.label}{_REGIMES.get(str(regime), f', {regime}')}", own[own["regime"] == regime])
        for series, own in course.each(table)
        for regime in dict.fromkeys(own["regime"])
    ]
    ends = [span(table[side]) for side in ("input", "output")]
    return Drawn(
        data=table.drop(columns=["next_input", "next_output"]).round(4),
        panels=[Panel(spec=_chart(course.axis, rows, ends), title=title) for title, rows in shown],
        answer=[_sentence(shown)],
        caption=f"{checkpoints_note(course, table)} Means over seeds. Hollow marks: update "
        f"{int(table['update'].min()):,}, the baseline of each path. All panels share one scale.",
        payload={"legend": layer_legend(table["layer"])},
    )


def _table(course: CheckpointTables) -> pd.DataFrame:
    """Both sides of each layer and checkpoint, with those of the next one; leaves out regimes with identical sides."""
    frame = main_stack(course[MUTUAL_INFORMATION_TABLE.name])
    if frame.empty or not {"input", "output"} <= set(frame["side"]):
        return pd.DataFrame()
    long = means(frame, ["regime", "side", "layer"])
    keys = ["series", "regime", "layer", "update"]
    table = (
        long.pivot_table(index=keys, columns="side", values="value").dropna(subset=["input", "output"]).reset_index()
    )
    same = (table["input"] - table["output"]).abs().groupby([table["series"], table["regime"]]).transform("max") < 1e-9
    table = table[~same].sort_values(keys, ignore_index=True)
    following = table.groupby(keys[:-1])[["input", "output"]].shift(-1)
    return table.assign(next_input=following["input"], next_output=following["output"])


def _chart(axis: TimeAxis, rows: pd.DataFrame, ends: list[tuple[float, float]]) -> dict[str, Any]:
    rows = rows.round(dict.fromkeys(("input", "output", "next_input", "next_output"), 3)).drop(columns="regime")
    at = {
        "x": amount("x", "input", "input token (nats)", ends[0], ticks=4),
        "y": amount("y", "output", "token to predict (nats)", ends[1], ticks=5),
        "color": layer_color(list(rows["layer"])),
    }
    first = rows[rows["update"] == rows["update"].min()]
    tooltip = tips("layer:O", "update:Q||,", "input:Q|input (nats)|.3f", "output:Q|to predict (nats)|.3f")
    path = {"strokeWidth": 1.6, "opacity": Constant(0.85), "detail": "layer:O", "order": "update:Q"}
    arrow = {"shape": "triangle", "size": 44, "filled": True, "opacity": 1, "angle": expression(_ANGLE)}
    large = {"filled": True, "size": 110, "stroke": "var(--paper)", "strokeWidth": 1, "opacity": at_now(1, 0)}
    layers = [
        draw("line", rows, at, path),
        draw("point", _arrows(rows, ends), at, arrow),
        draw("point", first, at, HOLLOW_MARK, size=34, strokeWidth=1.5, opacity=1),
        draw("point", rows, at, large),
        draw("point", rows, at, TOUCH, size=90, tooltip=tooltip, color=None),
    ]
    return finished(layers, HEIGHT, **axis.parameters([str(rows["series"].iloc[0])]))


def _arrows(rows: pd.DataFrame, ends: list[tuple[float, float]]) -> pd.DataFrame:
    """Arrows in the middle of each path's two longest steps, if these are long enough to be visible."""
    widths = [high - low for low, high in ends]
    sides = [
        (rows[f"next_{side}"] - rows[side]) / width for side, width in zip(("input", "output"), widths, strict=True)
    ]
    step = np.hypot(*sides)
    long = rows.assign(step=step)[step > _SHORTEST].sort_values("step", ascending=False).groupby("layer").head(2)
    middle = {side: (long[side] + long[f"next_{side}"]) / 2 for side in ("input", "output")}
    return long.assign(to_input=long["next_input"], to_output=long["next_output"], **middle).drop(columns="step")


def _sentence(shown: list[tuple[str, pd.DataFrame]]) -> str:
    parts = []
    for title, rows in shown:
        top = rows[rows["layer"] == rows["layer"].max()].sort_values("update")
        gained = [float(top[side].iloc[-1] - top[side].iloc[0]) for side in ("output", "input")]
        words = [
            f"{'gained' if value >= 0 else 'lost'} {number(abs(value))} nats about {what}"
            for value, what in zip(gained, ("the token to predict", "its input"), strict=True)
        ]
        parts.append(f"in {title} {listed(words)}")
    return f"Over training, the top layer {'; '.join(parts)}."


INFORMATION = DeclaredFigure(
    name="over-training/information-plane",
    id="information-picture",
    question="What do layers gain, and what do they give up?",
    how_to_read=(
        "Across: how many nats about the input token can be read from a layer's vectors. Up: the same about the "
        "token to predict. Each path is one layer: it starts at the hollow mark and follows the arrows to the "
        "end of training. Pale paths are low layers.",
        "The large dots are the checkpoint chosen with the slider. In a model that reads the very token it has "
        "to predict, both axes would show the same, so masked models are shown with inputs corrupted as in "
        "training.",
        CAVEAT,
    ),
    method=INFORMATION_METHOD,
    tables=(MUTUAL_INFORMATION_TABLE.at_checkpoints,),
    template="paths.html.jinja",
    payload={"caveat": CAVEAT},
    draw=_information,
)
