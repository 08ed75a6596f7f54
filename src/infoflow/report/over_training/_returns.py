"""Curves that go and return: where they turn, and when half of each way was over."""

import pandas as pd

from .._figure import ReportFigure
from .._numbers import listed, number
from ..forms._time_axis import short
from ._course import CheckpointTables
from ._phases import CURVE, PHASES, clearest, curve_panel

RETURNS = "goes and returns"
"""The verdict in `phases`."""
_AS_TIMES = {"out": "t10", "turn": "t50", "back": "t90"}  # what a panel of phases marks
_ENDS = ("", "_before", "_after")
_MARKS = ("half out, turn, half back", "the turn lies in")


def returns_figure(course: CheckpointTables) -> ReportFigure | None:
    """The curves that turn furthest, two of a table; None where none does."""
    curves, frame = course["phase_curves"], course["phases"]
    if curves.empty or frame.empty or "turn" not in frame:
        return None
    own = frame[frame["verdict"] == RETURNS]
    if own.empty:
        return None
    marked = own.drop(columns=[f"{to}{end}" for to in _AS_TIMES.values() for end in _ENDS]).rename(
        columns={f"{name}{end}": f"{to}{end}" for name, to in _AS_TIMES.items() for end in _ENDS}
    )
    chosen = clearest(_over_seeds(marked))
    return ReportFigure(
        id="returns-over-training",
        question="What went and came back?",
        answer=[_sentence(own, len(frame))],
        panels=[
            curve_panel(course, series, row, curves, _MARKS)
            for series, rows in course.each(chosen)
            for row in rows.itertuples()
        ],
        caption=f"The curves that turn furthest, {len(chosen)} of {len(own.drop_duplicates(CURVE))}: their extremum "
        "lies beyond the levels of both ends.",
        how_to_read=[
            "The upright line is the extremum, the bar at its foot reaches to the checkpoints beside it. The shaded "
            "field goes from the update at which half of the way out was over to that of half of the way back. Such a "
            "curve has no single time of change, and none is told.",
        ],
        method=PHASES,
        data=own.drop(columns=["series"]),
        tables=("phase_curves", "phases"),
    )


def _over_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each curve: medians over the seeds in which it returns, the widest brackets."""
    rows = []
    for place, own in frame.groupby(CURVE, sort=False):
        times = {
            f"{name}{end}": float(getattr(own[f"{name}{end}"], how)())
            for name in _AS_TIMES.values()
            for end, how in zip(_ENDS, ("median", "min", "max"), strict=True)
        }
        levels = own[["first", "last"]].to_numpy(float)
        extremum = own["extremum"].to_numpy(float)
        beyond = abs(extremum[:, None] - levels).min(axis=1) / abs(extremum[:, None] - levels).max(axis=1)
        seeds = f" in {len(own)} seeds" if len(own) > 1 else ""
        facts = {"rank": 0, "delta_bic": float(beyond.mean()), "told": f"{RETURNS}{seeds}", "bound": False}
        rows.append({**dict(zip(CURVE, place, strict=True)), **times, **facts})
    return pd.DataFrame(rows)


def _sentence(own: pd.DataFrame, num: int) -> str:
    """How many return, and those that turn furthest by name."""
    first = own.drop_duplicates(["table", "curve"]).head(3)
    told = [f"{row.curve} ({number(float(row.extremum))} at update {short(row.turn)})" for row in first.itertuples()]
    others = ["others"] if len(own.drop_duplicates(["table", "curve"])) > len(first) else []
    return f"{len(own)} of {num} curves (each model, seed and measure) go and return: {listed([*told, *others])}."
