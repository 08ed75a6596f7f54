"""Abrupt and gradual changes: curves with the times of their change."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel
from infoflow.report._in_words import listed
from infoflow.report._theme import Series
from infoflow.report.forms._chart import amount, tips, with_field
from infoflow.report.forms._marks import Constant, Layer, calculated, channel, draw
from infoflow.report.forms._over_time import TOUCH, TimeAxis, short, timed

from ..measures import PHASE_CURVES
from ..measures import PHASES as PHASES_TABLE
from ._course import CheckpointTables

PHASES = Method(
    id="phases",
    title="Phases",
    text="""
    Each curve is analysed over log<sub>2</sub> <i>t</i>. Its levels are means of three points at each end; t10, t50
    and t90 are where its isotonic fit passes 10, 50 and 90% of the change, each somewhere between two checkpoints.
    <i>Abrupt</i>: the change is finished, a logistic curve beats lines, a power law and a relaxation by more than 6
    in BIC, and t10 to t90 takes at most three doublings and a third of the training. <i>Unresolved</i>: the same, but
    too few checkpoints lie in between. <i>Unfinished</i>, and <i>started before</i> the first checkpoint: times are
    bounds. <i>Goes and returns</i>: the mean of three interior points lies beyond the levels of both ends by more
    than four standard errors and by more than a quarter of the change between them. A relaxation at constant rate
    always takes 4.45 doublings; a straight line takes 3.17 doublings and 0.8 of the training. Over seeds: medians of
    the seeds whose change begins and ends within the training. The straight pieces over log<sub>2</sub> <i>t</i>, one
    to four, are fitted by least squares in standard errors over all possible cuts; BIC chooses their number.
    """,
)
SHOWN = ("abrupt", "unresolved", "gradual", "unfinished", "started before")
"""Verdicts of curves with times, the clearest first."""
BOUNDS = ("unfinished", "started before")  # verdicts whose times are bounds
_ENDS = {"": "median", "_before": "min", "_after": "max"}  # over seeds
TIMES = tuple(f"{at}{end}" for at in ("t10", "t50", "t90") for end in _ENDS)
_AT = {name: name for name in ("t10", "t50", "t90", "t50_before", "t50_after")}
CURVE = ["series", "table", "curve"]  # key columns of a curve
_HEIGHT, _SEED = 150, 7  # pixels; for the lines of one seed
_OF_TABLE, _PANELS = 2, 6  # curves per table, and per line of models


def timed_phases(course: CheckpointTables) -> pd.DataFrame:
    """Rows of `phases` with times, clipped to the checkpoints; adds `rank` of the verdict."""
    frame = course[PHASES_TABLE.name]
    if frame.empty:
        return frame
    own = frame[frame["verdict"].isin(SHOWN)].dropna(subset="t50")
    within = own[list(TIMES)].clip(lower=course.axis.first, upper=course.axis.last)
    return own.assign(**within, rank=own["verdict"].map(list(SHOWN).index)).reset_index(drop=True)


def over_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per curve: median times and widest brackets over seeds, and the seeds' verdicts in words.

    Seeds whose times are bounds count only if there are no others.
    """
    rows = []
    for place, own in frame.groupby(CURVE, sort=False):
        known = own[~own["verdict"].isin(BOUNDS)]
        times = (known if len(known) else own).agg({name: _ENDS[name[3:]] for name in TIMES})
        facts = {"rank": int(own["rank"].max()), "delta_bic": float(own["delta_bic"].mean()), "seeds": len(own)}
        stated = {"stated": _text(own), "bound": not len(known)}
        rows.append({**dict(zip(CURVE, place, strict=True)), **times, **facts, **stated})
    return pd.DataFrame(rows, columns=[*CURVE, *TIMES, "rank", "delta_bic", "seeds", "stated", "bound"])


def _text(own: pd.DataFrame) -> str:
    """`abrupt`, or `2 abrupt, 1 gradual` if seeds differ; adds `at warm-up` if that holds for at least half of them."""
    counts = own["verdict"].value_counts()
    words = [str(one) if len(counts) == 1 else f"{counts[one]} {one}" for one in SHOWN if one in counts]
    return ", ".join([*words, *(["at warm-up"] if float(own["at_warm_up"].astype(float).mean()) >= 0.5 else [])])


def curve_name(row: Any) -> str:
    return f"{row.curve} · {str(row.table).replace('_', ' ')}"


def _phases(course: CheckpointTables) -> Drawn | None:
    curves, frame = course[PHASE_CURVES.name], timed_phases(course)
    if curves.empty or frame.empty:
        return None
    chosen = _clearest(over_seeds(frame))
    panels, seeds = _curve_panels(course, chosen, curves), int(chosen["seeds"].max())
    if not panels:
        return None
    every = course[PHASES_TABLE.name]
    stated = [f"{count} {verdict}" for verdict, count in every["verdict"].value_counts().items()]
    lines = f"One line per seed ({seeds} seeds)." if seeds > 1 else "One seed; the band is its 95% interval."
    return Drawn(
        data=curves.merge(chosen[CURVE]).drop(columns="same_as", errors="ignore"),
        panels=panels,
        answer=[f"{len(every)} curves (one per model, seed and measure): {listed(stated)}."],
        caption=f"The clearest curves of each model, at most {_OF_TABLE} per table: {len(chosen)} of the "
        f"{len(frame.drop_duplicates(CURVE))} that change. {lines}",
    )


def _clearest(table: pd.DataFrame) -> pd.DataFrame:
    """The loss; then from each table the abrupt curves first, by the advantage of their fit."""
    ordered = table.assign(other=table["table"] != "task_scores")
    ordered = ordered.sort_values(["other", "rank", "delta_bic"], ascending=[True, True, False], kind="stable")
    few = ordered.groupby(["series", "table"], sort=False).head(_OF_TABLE)
    return few.groupby("series", sort=False).head(_PANELS)


def _curve_panels(course: CheckpointTables, chosen: pd.DataFrame, curves: pd.DataFrame) -> list[Panel]:
    """One panel per chosen row: its curve, with the row's times (t10, t50, t90, their brackets, `stated`, `bound`)."""
    panels = []
    for series, rows in course.each(chosen):
        for row in rows.itertuples():
            own = np.all([curves[name] == getattr(row, name) for name in CURVE], axis=0)
            chart = _chart(course.axis, series, row, curves[own])
            panels.append(Panel(spec=chart, title=f"{series.label}: {row.curve} — {row.stated}"))
    return panels


def _chart(axis: TimeAxis, series: Series, row: Any, curve: pd.DataFrame) -> dict[str, Any]:
    seeds = sorted({int(seed) for seed in curve["seed"]})
    bottom = _HEIGHT - _SEED * len(seeds) - 3
    values = curve.assign(low=curve["value"] - 1.96 * curve["error"], high=curve["value"] + 1.96 * curve["error"])
    ends = ["low", "high"] if len(seeds) == 1 else []
    base = timed(values[["series", "seed", "update", "value", *ends]].round(5))
    at = {"x": axis.channel(), "y": amount("y", "value", None, ticks=4, range=[bottom, 4])}
    colored = {**at, "color": Constant(series.color)}
    band = {"y": with_field(at["y"], "low"), "y2": "high:Q", "opacity": 0.15}
    field, *middle = _change(axis, row, bottom)
    layers = [
        field,
        axis.marker([series.key]),
        *([draw("area", base, colored, band)] if ends else []),
        draw("line", base, colored, strokeWidth=1.7, detail="seed:N"),
        draw("point", base, at, TOUCH, size=90, tooltip=tips("seed:N", "update:Q||,", "value:Q||.4g")),
        _strips(axis, series.key, curve, seeds),
        *middle,
    ]
    return axis.finished(layers, _HEIGHT, [series.key])


def _change(axis: TimeAxis, row: Any, height: int) -> list[Layer]:
    """An area from a tenth to nine tenths of the change, its middle, and the adjacent checkpoints."""
    times = f"{short(row.t10)}, {short(row.t50)}, {short(row.t90)}"
    around = f"{short(row.t50_before)} to {short(row.t50_after)}"
    stated = {"stated": times, "around": around, "verdict": row.stated}
    base = axis.placed(pd.DataFrame([{**{name: getattr(row, name) for name in _AT}, **stated}]), row.series, **_AT)
    half, ink = {"x": axis.channel("t50"), "y": Constant(0), "y2": Constant(height)}, {"color": "var(--ink)"}
    upright = {"y": Constant(height - 4), "y2": Constant(height + 4), "strokeWidth": 1.6}
    field = {"x": axis.channel("t10"), "x2": "t90:Q", "y": Constant(0), "y2": Constant(_HEIGHT)}
    foot = {"x": axis.channel("t50_before"), "x2": "t50_after:Q", "y": Constant(height), "strokeWidth": 1.6}
    dash = {"strokeDash": [3, 3]} if row.bound else {}
    tooltip = tips("verdict:N", "stated:N|t10, t50, t90", "around:N|t50 lies in")
    return [
        draw("rect", base, field, color="var(--heat-2)", opacity=0.13 if row.bound else 0.2),
        draw("rule", base, half, ink, dash, strokeWidth=1.4, tooltip=tooltip),
        draw("rule", base, foot, ink, tooltip=tooltip),
        *(draw("rule", base, upright, ink, x=axis.channel(name)) for name in ("t50_before", "t50_after")),
    ]


def _strips(axis: TimeAxis, key: str, curve: pd.DataFrame, seeds: list[int]) -> Layer:
    """The linear segments of each seed, one strip per seed, in alternating shades."""
    rows = []
    for seed, own in curve.groupby("seed"):
        own = own.sort_values("update")
        edges = axis.edges(key, own["update"].to_numpy())
        top = _HEIGHT - _SEED * (len(seeds) - seeds.index(int(seed))) + 1  # type: ignore[arg-type]
        for piece in sorted(set(own["segment"]) - {-1}):
            at = np.flatnonzero(own["segment"].to_numpy() == piece)
            ends = {"from_at": edges[at[0], :, 0].tolist(), "to_at": edges[at[-1], :, 1].tolist()}
            since, until = (int(own["update"].iloc[at[end]]) for end in (0, -1))
            stated = f"updates {since:,} to {until:,}"
            shade = 0.55 if piece % 2 else 0.22
            rows.append({**ends, "top": top, "bottom": top + _SEED - 2, "shade": shade, "seed": seed, "stated": stated})
    base = calculated(pd.DataFrame(rows), **{name: f"datum.{name}_at[clock]" for name in ("from", "to")})
    y = {"y": channel("y", "top:Q", scale=None, axis=None), "y2": "bottom:Q"}
    shade = channel("opacity", "shade:Q", scale=None)
    tooltip = tips("seed:N", "stated:N|straight piece")
    return draw("rect", base, y, color="var(--soft)", x=axis.channel("from"), x2="to:Q", opacity=shade, tooltip=tooltip)


PHASES_FIGURE = DeclaredFigure(
    name="over-training/phases",
    id="phases",
    question="What changed abruptly, and what gradually?",
    how_to_read=(
        "Across: training. Up: the measure. The shaded area runs from a tenth to nine tenths of the change. The "
        "upright line is the midpoint, and the bar at its foot spans the checkpoints around it: times are no "
        "more exact than that. The title says how the curve changed.",
        "The strips below, one per seed, are the straight pieces that fit the curve best; a new shade is a new "
        "piece. They are a visual aid, not a finding.",
        "“At warm-up”: the midpoint lies within half a doubling of the end of warm-up, so the schedule may be "
        "the reason. Late in training, a gradual change can look short on the axis of updates: check the axis of "
        "tokens too.",
    ),
    method=PHASES,
    tables=(PHASE_CURVES.name, PHASES_TABLE.name),
    draw=_phases,
)
