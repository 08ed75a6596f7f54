"""How the loss fell, with the learning rate and the checkpoints below."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import listed, number
from ..forms._chart import CONTROL, HEIGHT, NAME, amount, lit, spread, tips
from ..forms._lines import looks_of
from ..forms._time_axis import TimeAxis, timed
from ._course import CheckpointTables, means
from ._phases import PHASES

_STRIP = 34  # pixels of learning rate and checkpoints below the loss


def loss_figure(course: CheckpointTables) -> ReportFigure | None:
    """The loss over training; None where no table tells."""
    frame = course["learning_curves"]
    if frame.empty or "step" not in frame.columns:
        return None
    table = _curves(frame, course.axis)
    if table.empty:
        return None
    series = course.series(table)
    several = int(table["seeds"].max())
    return ReportFigure(
        id="loss-over-training",
        question="How did the loss fall, and where was it looked at?",
        answer=[_loss_sentence(course, table)],
        panels=[Panel(spec=_loss_chart(course, table))],
        caption=f"Training loss, each point the mean since the one before; {len(course.moments)} checkpoints. "
        + (
            f"Lines are means over {several} seeds, bands go from the lowest to the highest."
            if several > 1
            else "One seed."
        ),
        how_to_read=[
            "Across: training. Up: the loss that the model was trained on, under dropout and the objective's own "
            "noise. Below: the learning rate (grey, as far as the checkpoints tell it) and a tick for every "
            "checkpoint that "
            "was measured: nothing can be told more exactly than from tick to tick.",
            "Hollow marks: the loss on held-out sentences at each checkpoint; dashed grey: what unigram frequencies "
            "would give. Losses of different objectives cannot be compared with each other.",
        ],
        method=PHASES,
        data=table,
        tables=("learning_curves", "task_scores_over_training"),
        payload={"series": [one.key for one in series]},
    )


def _curves(frame: pd.DataFrame, axis: TimeAxis) -> pd.DataFrame:
    """Mean, lowest and highest seed at each step of a line, from the first checkpoint on."""
    frame = frame[frame["step"] >= axis.first].assign(point=lambda own: own.groupby(["series", "seed"]).cumcount())
    grouped = frame.groupby(["series", "point"], sort=False)
    table = grouped.agg(
        update=("step", "mean"),
        value=("value", "mean"),
        low=("value", "min"),
        high=("value", "max"),
        seeds=("seed", "nunique"),
    ).reset_index()
    return table.sort_values(["series", "update"], ignore_index=True).drop(columns="point")


def _loss_sentence(course: CheckpointTables, table: pd.DataFrame) -> str:
    parts = []
    for series, own in course.each(table):
        curve = own.set_index("update")["value"]
        half = float(curve.iloc[0] + curve.iloc[-1]) / 2
        when = int(curve.index[int((curve <= half).to_numpy().argmax())])
        ends = f"from {number(curve.iloc[0])} to {number(curve.iloc[-1])} nats"
        parts.append(f"{series.label} {ends}, half of it by update {when:,}")
    return f"Training loss fell in {listed(parts)}."


def _loss_chart(course: CheckpointTables, table: pd.DataFrame) -> dict[str, Any]:
    axis, series = course.axis.with_room(0.16), course.series(table)
    held_out = _held_out(course)
    rows = pd.concat(
        [own.assign(at=axis.places(one.key, own["update"]).tolist()) for one, own in course.each(table)],
        ignore_index=True,
    ).round({"value": 4, "low": 4, "high": 4})
    ends = pd.concat([rows, held_out])
    low, high = float(ends["low"].min()), float(ends["high"].max())
    floor = low - (high - low) * (_STRIP + 12) / (HEIGHT - _STRIP - 12)
    ticks = [value for value in np.linspace(np.floor(low), np.ceil(high), 6).round(1).tolist() if value >= low - 0.3]
    y = amount("value", "training loss (nats per token)", [floor, high + 0.03 * (high - low)], values=ticks)
    at = {"x": axis.channel(), "y": alt.Y(**y)}

    def placed(own: pd.DataFrame) -> alt.Chart:
        return alt.Chart(own).transform_calculate(x="datum.at[clock]")

    look = looks_of(series)
    ends = rows.loc[rows.groupby("series")["update"].idxmax()]
    gap = 13 / HEIGHT * (high - floor)
    ends = ends.assign(
        height=spread(list(ends["value"]), gap, high), name=ends["series"].map({s.key: s.label for s in series})
    )
    y_end = alt.Y("height:Q", scale=at["y"]["scale"])
    band = (
        placed(rows)
        .mark_area()
        .encode(
            x=at["x"],
            y=alt.Y("low:Q", scale=at["y"]["scale"]),
            y2=alt.Y2("high:Q"),
            color=look["color"],
            opacity=lit(0.16),
        )
    )
    tooltip = tips("series:N|model", "update:Q||,.0f", "value:Q|loss|.3f")
    names = placed(ends).mark_text(align="left", dx=6, **NAME)
    layers = [
        axis.marker([one.key for one in series]),
        band,
        placed(rows)
        .mark_line(strokeWidth=2)
        .encode(**at, color=look["color"], strokeDash=look["strokeDash"], opacity=lit()),
        placed(rows).mark_point(size=160, opacity=0, filled=True).encode(**at, tooltip=tooltip),
        names.encode(x=at["x"], y=y_end, text=alt.Text("name:N"), color=look["color"], opacity=lit(1.0, 0.25)),
        *_held_out_marks(held_out, at, look["color"]),
        *_strip(course, axis, at["x"]),
    ]
    return axis.finished(layers, HEIGHT, [one.key for one in series])


def _held_out(course: CheckpointTables) -> pd.DataFrame:
    """The loss on sentences that no update saw, at every checkpoint, with that of unigram frequencies."""
    frame = course["task_scores"]
    if frame.empty or "loss" not in set(frame["metric"]):
        return pd.DataFrame(columns=["series", "update", "value", "low", "high", "baseline"])
    frame = frame[frame["metric"] == "loss"]
    split = "test" if "test" in set(frame["split"]) else frame["split"].iloc[0]
    table = means(frame[frame["split"] == split], [], ("value", "baseline"))
    # Only what is drawn counts for the axis.
    return (
        table[table["update"] >= course.axis.first]
        .drop(columns="seeds")
        .assign(low=table["value"], high=table["value"])
    )


def _held_out_marks(table: pd.DataFrame, at: dict[str, Any], color: alt.Color) -> list[alt.Chart]:
    if table.empty:
        return []
    marks = timed(alt.Chart(table[["series", "update", "value"]].round(4)))
    marks = marks.mark_point(size=30, filled=False, fill="var(--paper)", strokeWidth=1.4, opacity=1)
    unigram = alt.Chart(table.groupby("series", as_index=False)["baseline"].mean().round(4))
    y = alt.Y("baseline:Q", scale=at["y"]["scale"])
    look = {"align": "left", "baseline": "bottom", "dy": -2, "fontSize": 10.5, "fontStyle": "italic"}
    note = alt.Chart(table.nlargest(1, "baseline")[["baseline"]].round(4)).mark_text(color="var(--soft)", **look)
    return [
        note.encode(x=alt.XValue(4), y=y, text=alt.TextValue("unigram frequencies")),
        unigram.mark_rule(**CONTROL).encode(y=y, opacity=lit(0.8)),
        marks.encode(
            **at, color=color, opacity=lit(), tooltip=tips("series:N|model", "update:Q||,", "value:Q|held out|.3f")
        ),
    ]


def _strip(course: CheckpointTables, axis: TimeAxis, x: alt.X) -> list[alt.Chart]:
    """The learning rate between checkpoints, and a tick for each of them."""
    clocks = course.clocks[["series", "update", "lr_share"]]
    ticks = timed(alt.Chart(clocks[["series", "update"]])).mark_rule(color="var(--soft)", strokeWidth=1)
    layers = [
        ticks.encode(x=x, y=alt.YValue(HEIGHT - 7), y2=alt.Y2Value(HEIGHT), tooltip=tips("update:Q|checkpoint|,"))
    ]
    if "lr_share" in axis.names:
        rates = pd.concat([_rates(axis, own, str(key)) for key, own in clocks.groupby("series")], ignore_index=True)
        base = alt.Chart(rates).transform_calculate(
            x="datum.at[clock]", height=f"{HEIGHT - 9} - {_STRIP - 9} * datum.rate"
        )
        y = alt.Y("height:Q", scale=None, axis=None)
        layers.append(
            base.mark_line(color="var(--control)", strokeWidth=1.2).encode(x=x, y=y, detail=alt.Detail("series:N"))
        )
        look = {"align": "left", "baseline": "bottom", "fontSize": 10.5, "fontStyle": "italic", "color": "var(--soft)"}
        note = alt.Chart(pd.DataFrame([{"text": "learning rate"}])).mark_text(**look)
        layers.append(note.encode(x=alt.XValue(4), y=alt.YValue(HEIGHT - _STRIP + 2), text=alt.Text("text:N")))
    return layers


def _rates(axis: TimeAxis, clocks: pd.DataFrame, series: str) -> pd.DataFrame:
    """Mean learning rate between checkpoints, as a share of the highest; in the middle of each stretch."""
    clocks = clocks.sort_values("update")
    updates, shares = clocks["update"].to_numpy(dtype=float), clocks["lr_share"].to_numpy(dtype=float)
    rate = np.diff(shares) / np.maximum(np.diff(updates), 1)
    middle = (updates[1:] + updates[:-1]) / 2
    places = axis.places(series, np.maximum(middle, axis.first)).tolist()
    return pd.DataFrame({"series": series, "rate": np.round(rate / (rate.max() or 1.0), 3), "at": places})
