"""The information picture: what each layer knows of its input and of what must come out, as paths through training."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import listed, number
from ..forms._chart import HEIGHT, amount, finished, tips
from ..forms._over_time import layer_color, layer_shades
from ..forms._time_axis import TimeAxis, at_now
from ..knows._convergence import MUTUAL_INFORMATION
from ._course import CheckpointTables, checkpoints_note, means
from ._layer_measures import main_stack

_REGIMES = {"clean": "", "training": ", corrupted as in training"}
_ANGLE = (
    "atan2(scale('y', datum.to_output) - scale('y', datum.output), "
    "scale('x', datum.to_input) - scale('x', datum.input)) * 180 / PI + 90"
)
_SHORTEST = 0.04  # share of the axes that a step with an arrow is long
CAVEAT = (
    "A path that turns back to the left is no proof of “compression”: whether the information plane shows such a "
    "phase depends on the activation and on the estimator (Shwartz-Ziv and Tishby 2017 against Saxe et al. 2018), and "
    "falling values of clustered states show geometry as much as a loss of information. No finding here claims "
    "compression."
)


def information_figure(course: CheckpointTables) -> ReportFigure | None:
    """A panel for each model and regime whose two sides differ; None where no table tells."""
    table = _table(course)
    if table.empty:
        return None
    shown = [
        (f"{series.label}{_REGIMES.get(str(regime), f', {regime}')}", own[own["regime"] == regime])
        for series, own in course.each(table)
        for regime in dict.fromkeys(own["regime"])
    ]
    spans = [_span(table[side]) for side in ("input", "output")]
    layers = sorted({int(layer) for layer in table["layer"]})
    legend = [
        {"label": f"layer {each}", "color": shade} for each, shade in zip(layers, layer_shades(layers), strict=True)
    ]
    start = int(table["update"].min())
    return ReportFigure(
        id="information-picture",
        question="What do layers gain, and what do they give up for it?",
        answer=[_sentence(shown)],
        panels=[Panel(spec=_chart(course.axis, rows, spans), title=title) for title, rows in shown],
        caption=f"{checkpoints_note(course, table)} Means over seeds. Hollow marks: update {start:,}, the same "
        "estimate for what was there first, which calibrates the picture. All panels have one scale.",
        how_to_read=[
            "Across: nats of the input token that can be read from a layer's vectors; up: of the token to predict. "
            "Each path is one layer, from its hollow mark along the arrows to the end of training; pale paths are low "
            "layers.",
            "The large dots are the checkpoint that the slider has come to. In a model that reads the token which it "
            "has to name, both sides would be the same: masked models are shown with inputs corrupted as in training.",
            CAVEAT,
        ],
        method=MUTUAL_INFORMATION,
        data=table.drop(columns=["next_input", "next_output"]).round(4),
        tables=("mutual_information_over_training",),
        template="paths.html.jinja",
        payload={"legend": legend, "caveat": CAVEAT},
    )


def _table(course: CheckpointTables) -> pd.DataFrame:
    """Both sides of each layer and checkpoint, with those of the next one; regimes whose sides are one left out."""
    frame = main_stack(course["mutual_information"])
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


def _span(values: pd.Series) -> list[float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or 0.1
    return [low - margin, high + margin]


def _chart(axis: TimeAxis, rows: pd.DataFrame, spans: list[list[float]]) -> dict[str, Any]:
    rows = rows.round(dict.fromkeys(("input", "output", "next_input", "next_output"), 3)).drop(columns="regime")
    x = alt.X(**amount("input", "input token (nats)", spans[0], ticks=4))
    at = {"x": x, "y": alt.Y(**amount("output", "token to predict (nats)", spans[1], ticks=5))}
    color = layer_color(list(rows["layer"]))
    base = alt.Chart(rows)
    path = {"detail": "layer:O", "order": alt.Order("update:Q")}
    arrows = alt.Chart(_arrows(rows, spans))
    heads = arrows.mark_point(shape="triangle", size=44, filled=True, opacity=1, angle=alt.ExprRef(_ANGLE))
    first = alt.Chart(rows[rows["update"] == rows["update"].min()])
    hollow = first.mark_point(size=34, filled=False, fill="var(--paper)", strokeWidth=1.5, opacity=1)
    tooltip = tips("layer:O", "update:Q||,", "input:Q|input (nats)|.3f", "output:Q|to predict (nats)|.3f")
    now = base.mark_point(filled=True, size=110, stroke="var(--paper)", strokeWidth=1)
    layers = [
        base.mark_line(strokeWidth=1.6).encode(**at, color=color, **path, opacity=alt.OpacityValue(0.85)),
        heads.encode(**at, color=color),
        hollow.encode(**at, color=color),
        now.encode(**at, color=color, opacity=at_now(1, 0)),
        base.mark_point(filled=True, size=90).encode(**at, opacity=alt.OpacityValue(0), tooltip=tooltip),
    ]
    return finished(layers, HEIGHT, **axis.parameters([str(rows["series"].iloc[0])]))


def _arrows(rows: pd.DataFrame, spans: list[list[float]]) -> pd.DataFrame:
    """In the middle of the two longest steps of each path, if they are long enough to be seen."""
    widths = [high - low for low, high in spans]
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
    return f"Over training the top layer {'; '.join(parts)}."
