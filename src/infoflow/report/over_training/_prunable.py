"""How many heads a model can lose at each checkpoint, and whether they are always the same ones."""

import altair as alt
import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import listed, number
from ..forms._chart import CONTROL, amount, lit, tips
from ..forms._lines import looks_of
from ..forms._over_time import time_lines
from ..forms._time_axis import timed
from ..heads._matter import HEAD_IMPORTANCE
from ._course import CheckpointTables, band_note, checkpoints_note, means


def prunable_figure(course: CheckpointTables) -> ReportFigure | None:
    """Lines by importance, and in random order as the control; None where no table tells."""
    frame = course["prunable_by_update"]
    if frame.empty or "importance" not in set(frame["order"]):
        return None
    every = means(frame[frame["kind"] == "all"], ["order"])
    table, control = every[every["order"] == "importance"], every[every["order"] == "random"]
    series = course.series(table)
    grey = timed(alt.Chart(control[["series", "update", "value"]].round(4))).mark_line(**CONTROL)
    y = amount("value", "share of heads", (0.0, 1.0), ticks=5)
    at = {"x": course.axis.with_room(0.2).channel(), "y": alt.Y(**y)}
    chart = time_lines(
        course.axis,
        table.round({"value": 4, "low": 4, "high": 4}),
        y,
        {name: channel for name, channel in looks_of(series).items() if name != "shape"},
        height=200,
        names=_names(table, {one.key: one.label for one in series}),
        room=0.2,
        beneath=[grey.encode(**at, detail=alt.Detail("series:N"), opacity=lit())] if len(control) else [],
        tooltip=tips("series:N|model", "update:Q||,", "value:Q|of the heads|.0%"),
    )
    return ReportFigure(
        id="prunable-over-training",
        question="When can heads be removed?",
        answer=[_sentence(course, table, control)],
        panels=[Panel(spec=chart)],
        caption=f"{checkpoints_note(course, table)} {band_note(table)}",
        how_to_read=[
            "Up: the largest share of heads that can be removed while the model keeps nine tenths of what it has "
            "gained over unigram frequencies, the least important heads first; dashed grey: in random order. Very "
            "early a model has nothing to lose, and no value.",
            "The data say too how many of the heads in the half that goes first are others than at the checkpoint "
            "before, and than at the end.",
        ],
        method=HEAD_IMPORTANCE,
        data=frame.drop(columns=["series", "replicates"], errors="ignore"),
        tables=("prunable_by_update",),
        findings=("heads:M7", "time:T-15"),
    )


def _names(table: pd.DataFrame, labels: dict[str, str]) -> pd.DataFrame:
    ends = table.loc[table.groupby("series")["update"].idxmax(), ["series", "update", "value"]]
    return ends.assign(text=ends["series"].map(labels))


def _sentence(course: CheckpointTables, table: pd.DataFrame, control: pd.DataFrame) -> str:
    parts = []
    for series, own in course.each(table):
        own = own.sort_values("update")
        first, last = own.iloc[0], own.iloc[-1]
        random = control[(control["series"] == series.key) & (control["update"] == last["update"])]["value"]
        against = f" (in random order {number(100 * float(random.iloc[0]), 0)}%)" if len(random) else ""
        start = f"{number(100 * float(first['value']), 0)}% at update {int(first['update']):,} and "
        end = f"{number(100 * float(last['value']), 0)}% at the end{against}"
        parts.append(f"{series.label} {start if len(own) > 1 else ''}{end}")
    return f"Heads that can go: {listed(parts)}."
