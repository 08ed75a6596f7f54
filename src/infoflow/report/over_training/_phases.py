"""What changed at once and what little by little: curves over training with the times of their change on them."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._figure import Method, Panel, ReportFigure
from .._numbers import listed
from .._series import Series
from ..forms._chart import amount, tips
from ..forms._time_axis import TimeAxis, short, timed
from ._course import CheckpointTables

PHASES = Method(
    id="phases",
    title="Phases",
    text="""
    Of each curve over log<sub>2</sub> <i>t</i>: levels are means of three points at each end; t10, t50 and t90 are the
    crossings of its isotonic fit, each somewhere between two checkpoints. <i>Abrupt</i>: finished, a logistic beats
    lines, a power and a relaxation by more than 6 of BIC, and from t10 to t90 it takes at most three doublings and a
    third of the training. <i>Unresolved</i>: the same, but too few checkpoints lie in between. <i>Unfinished</i>, and
    <i>started before</i> the first checkpoint: times are bounds. <i>Goes and returns</i>: the mean of three points in
    the interior lies beyond the levels of both ends by more than four standard errors and a quarter of the change
    between them. A relaxation at constant rate always takes 4.45 doublings, a straight line 3.17 and .8 of the
    training. Over seeds: medians of the seeds whose change begins and ends in the training. Straight lines over
    log<sub>2</sub> <i>t</i>, one after the other: one to four, chosen by BIC (least squares in standard errors, over
    all places to cut).
    """,
)
SHOWN = ("abrupt", "unresolved", "gradual", "unfinished", "started before")
"""Verdicts of curves that have times, the clearest first."""
BOUNDS = ("unfinished", "started before")
"""Verdicts whose times are bounds."""
TIMES = tuple(f"{at}{end}" for at in ("t10", "t50", "t90") for end in ("", "_before", "_after"))
Marks = tuple[str, str]
_OF_CHANGE: Marks = ("t10, t50, t90", "t50 lies in")
CURVE = ["series", "table", "curve"]
"""What tells curves apart."""
_HEIGHT, _SEED = 150, 7  # pixels; of the lines of one seed
_OF_TABLE, _PANELS = 2, 6  # curves of a table, and of a line of models


def timed_phases(course: CheckpointTables) -> pd.DataFrame:
    """Rows of `phases` with times, these within the checkpoints; with `at_warm_up` and `rank`, of the verdict."""
    frame = course["phases"]
    if frame.empty:
        return frame
    own = frame[frame["verdict"].isin(SHOWN)].dropna(subset="t50")
    times = [name for name in TIMES if name in own]
    within = own[times].astype(float).clip(lower=course.axis.first, upper=course.axis.last)
    warm = own["at_warm_up"].astype(bool) if "at_warm_up" in own else False
    return own.assign(**within, at_warm_up=warm, rank=own["verdict"].map(list(SHOWN).index)).reset_index(drop=True)


def over_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each curve: medians of the seeds whose times are no bounds (of all, where there is no such seed), the
    widest brackets of these, and what the seeds are called."""
    rows = []
    for place, own in frame.groupby(CURVE, sort=False):
        known = own[~own["verdict"].isin(BOUNDS)]
        of = known if len(known) else own
        times = {name: float(of[name].median()) for name in ("t10", "t50", "t90")}
        ends = {f"{name}_before": float(of[f"{name}_before"].min()) for name in times}
        ends |= {f"{name}_after": float(of[f"{name}_after"].max()) for name in times}
        facts = {"rank": int(own["rank"].max()), "delta_bic": float(own["delta_bic"].mean()), "seeds": len(own)}
        told = {"told": _told(own), "bound": not len(known)}
        rows.append({**dict(zip(CURVE, place, strict=True)), **times, **ends, **facts, **told})
    columns = [*CURVE, *TIMES, "rank", "delta_bic", "seeds", "told", "bound"]
    return pd.DataFrame(rows, columns=columns)


def _told(own: pd.DataFrame) -> str:
    """`abrupt`, or `2 abrupt, 1 gradual` where seeds differ; `at warm-up` where it is so in most of them."""
    counts = own["verdict"].value_counts()
    words = [str(one) if len(counts) == 1 else f"{counts[one]} {one}" for one in SHOWN if one in counts]
    return ", ".join([*words, *(["at warm-up"] if float(own["at_warm_up"].astype(float).mean()) >= 0.5 else [])])


def curve_name(row: Any) -> str:
    """What a curve is of, and from which table."""
    return f"{row.curve} · {str(row.table).replace('_', ' ')}"


def phases_figure(course: CheckpointTables) -> ReportFigure | None:
    """The clearest curves of each model; None where no table has curves."""
    curves, frame = course["phase_curves"], timed_phases(course)
    if curves.empty or frame.empty:
        return None
    chosen = clearest(over_seeds(frame))
    panels = [
        curve_panel(course, series, row, curves) for series, own in course.each(chosen) for row in own.itertuples()
    ]
    if not panels:
        return None
    seeds = int(chosen["seeds"].max())
    return ReportFigure(
        id="phases",
        question="What changed at once, and what little by little?",
        answer=[_sentence(course["phases"])],
        panels=panels,
        caption=f"The clearest curves of each model, {_OF_TABLE} of a table at most: {len(chosen)} of "
        f"{len(frame.drop_duplicates(CURVE))} that change. "
        + (f"A line for each of {seeds} seeds." if seeds > 1 else "One seed; the band is its 95% interval."),
        how_to_read=[
            "Across: training. Up: the measure. The shaded field goes from the update at which a tenth of the change "
            "was over to that of nine tenths, the upright line is the half, and the bar at its foot reaches to the "
            "checkpoints around that: no time is more exact. The word above says how the change came.",
            "The strips below, one for each seed, are the straight pieces that fit its curve best; where the shade "
            "changes, another piece begins. They are to look at, and no finding by themselves.",
            "“At warm-up”: the half lies within half a doubling of the end of the warm-up, so that the schedule may be "
            "the reason. A gradual change can be short on the axis of updates in the second half: look at tokens too.",
        ],
        method=PHASES,
        data=curves.merge(chosen[CURVE]).drop(columns="same_as", errors="ignore"),
        tables=("phase_curves", "phases"),
    )


def clearest(table: pd.DataFrame) -> pd.DataFrame:
    """The loss, and of each table the abrupt curves first, then by how much their fit wins."""
    ordered = table.assign(other=table["table"] != "task_scores")
    ordered = ordered.sort_values(["other", "rank", "delta_bic"], ascending=[True, True, False], kind="stable")
    few = ordered.groupby(["series", "table"], sort=False).head(_OF_TABLE)
    return few.groupby("series", sort=False).head(_PANELS)


def _sentence(frame: pd.DataFrame) -> str:
    told = [f"{count} {verdict}" for verdict, count in frame["verdict"].value_counts().items()]
    return f"Of {len(frame)} curves (each model, seed and measure): {listed(told)}."


def curve_panel(
    course: CheckpointTables, series: Series, row: Any, curves: pd.DataFrame, marks: Marks = _OF_CHANGE
) -> Panel:
    """A curve with the times of its row (t10, t50, t90, their brackets, `told`, `bound`), called as `marks` says."""
    own = np.all([curves[name] == getattr(row, name) for name in CURVE], axis=0)
    spec = _chart(course.axis, series, row, curves[own], marks)
    return Panel(spec=spec, title=f"{series.label}: {row.curve} — {row.told}")


def _chart(axis: TimeAxis, series: Series, row: Any, curve: pd.DataFrame, marks: Marks) -> dict[str, Any]:
    seeds = sorted({int(seed) for seed in curve["seed"]})
    strip = _SEED * len(seeds) + 3
    values = curve.assign(low=curve["value"] - 1.96 * curve["error"], high=curve["value"] + 1.96 * curve["error"])
    ends = ["low", "high"] if len(seeds) == 1 else []
    drawn = values[["series", "seed", "update", "value", *ends]].round(5)
    x, y = axis.channel(), alt.Y(**amount("value", None, ticks=4, range=[_HEIGHT - strip, 4]))
    base, color = timed(alt.Chart(drawn)), alt.ColorValue(series.color)
    tooltip = tips("seed:N", "update:Q||,", "value:Q||.4g")
    band = base.mark_area(opacity=0.15).encode(x=x, y=_same(y, "low"), y2="high:Q", color=color)
    layers = [
        *_change(axis, row),
        axis.marker([series.key]),
        *([band] if len(seeds) == 1 else []),
        base.mark_line(strokeWidth=1.7).encode(x=x, y=y, detail="seed:N", color=color),
        base.mark_point(size=90, filled=True, opacity=0).encode(x=x, y=y, tooltip=tooltip),
        _strips(axis, series.key, curve, seeds),
        *_bracket(axis, row, marks, _HEIGHT - strip),
    ]
    return axis.finished(layers, _HEIGHT, [series.key])


def _same(channel: alt.Y, field: str) -> alt.Y:
    other = channel.copy()
    other.shorthand = f"{field}:Q"
    return other


def _placed(axis: TimeAxis, key: str, times: dict[str, Any], **more: Any) -> alt.Chart:
    """One row whose times are places on the clock that is shown."""
    at = {f"{name}_at": [axis.places(key, [time])[0].tolist()] for name, time in times.items()}
    base = alt.Chart(pd.DataFrame({**at, **{name: [value] for name, value in more.items()}}))
    return base.transform_calculate(**{name: f"datum.{name}_at[clock]" for name in times})


def _change(axis: TimeAxis, row: Any) -> list[alt.Chart]:
    """From a tenth to nine tenths of the change."""
    base = _placed(axis, row.series, {"from": row.t10, "to": row.t90})
    field = base.mark_rect(color="var(--heat-2)", opacity=0.13 if row.bound else 0.2)
    return [field.encode(x=axis.channel("from"), x2=alt.X2("to:Q"), y=alt.YValue(0), y2=alt.Y2Value(_HEIGHT))]


def _bracket(axis: TimeAxis, row: Any, marks: Marks, height: int) -> list[alt.Chart]:
    """The middle of the change, and the checkpoints around it."""
    told = f"{short(row.t10)}, {short(row.t50)}, {short(row.t90)}"
    around = f"{short(row.t50_before)} to {short(row.t50_after)}"
    times = {"half": row.t50, "before": row.t50_before, "after": row.t50_after}
    base = _placed(axis, row.series, times, told=told, around=around, verdict=row.told)
    tooltip = tips("verdict:N", f"told:N|{marks[0]}", f"around:N|{marks[1]}")
    half, foot = axis.channel("half"), alt.YValue(height)
    dash = {"strokeDash": [3, 3]} if row.bound else {}
    upright = {"y": alt.YValue(height - 4), "y2": alt.Y2Value(height + 4)}
    ink = {"strokeWidth": 1.6, "color": "var(--ink)"}
    return [
        base.mark_rule(strokeWidth=1.4, color="var(--ink)", **dash).encode(
            x=half, y=alt.YValue(0), y2=alt.Y2Value(height), tooltip=tooltip
        ),
        base.mark_rule(**ink).encode(x=axis.channel("before"), x2=alt.X2("after:Q"), y=foot, tooltip=tooltip),
        *(base.mark_rule(**ink).encode(x=axis.channel(name), **upright) for name in ("before", "after")),
    ]


def _strips(axis: TimeAxis, key: str, curve: pd.DataFrame, seeds: list[int]) -> alt.Chart:
    """The straight pieces of each seed, a strip each, light and dark in turn."""
    rows = []
    for seed, own in curve.groupby("seed"):
        own = own.sort_values("update")
        edges = axis.edges(key, own["update"].to_numpy())
        top = _HEIGHT - _SEED * (len(seeds) - seeds.index(int(seed))) + 1  # type: ignore[arg-type]
        for piece in sorted(set(own["segment"]) - {-1}):
            at = np.flatnonzero(own["segment"].to_numpy() == piece)
            ends = {"from_at": edges[at[0], :, 0].tolist(), "to_at": edges[at[-1], :, 1].tolist()}
            since, until = (int(own["update"].iloc[at[end]]) for end in (0, -1))
            told = f"updates {since:,} to {until:,}"
            shade = 0.55 if piece % 2 else 0.22
            rows.append({**ends, "top": top, "bottom": top + _SEED - 2, "shade": shade, "seed": seed, "told": told})
    base = alt.Chart(pd.DataFrame(rows)).transform_calculate(
        **{name: f"datum.{name}_at[clock]" for name in ("from", "to")}
    )
    y = {"y": alt.Y("top:Q", scale=None, axis=None), "y2": alt.Y2("bottom:Q")}
    shade = alt.Opacity("shade:Q", scale=None)
    tooltip = tips("seed:N", "told:N|straight piece")
    return base.mark_rect(color="var(--soft)").encode(
        x=axis.channel("from"), x2=alt.X2("to:Q"), **y, opacity=shade, tooltip=tooltip
    )
