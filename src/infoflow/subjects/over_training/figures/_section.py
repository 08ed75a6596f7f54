"""The section over training: a slider through the checkpoints, its figures, and the order of events."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Panel, Section, names_of
from infoflow.report._in_words import listed
from infoflow.report._model_tables import ModelTables, unless_damaged
from infoflow.report._theme import Series
from infoflow.report.forms._chart import tips
from infoflow.report.forms._marks import Channel, Constant, Layer, calculated, channel, draw
from infoflow.report.forms._over_time import CLOCKS, ROW_NAME, TimeAxis, short

from ..measures import PHASES as PHASES_TABLE
from ..measures import PHASES_OVER_SEEDS
from ._claims import COMPLAINTS, FINDINGS, suspects
from ._course import CheckpointTables
from ._heads import HEADS, PRUNABLE
from ._layers import LAYERS
from ._loss import ALLOCATION, LOSS
from ._phases import BOUNDS, PHASES, PHASES_FIGURE, curve_name, over_seeds, timed_phases
from ._prediction import AGREEMENT, POSITIONS, SOURCE, STAGES
from ._settling import CURVES, TIMES

_ROW, _MOST = 26, 40  # pixels per row; rows per line of models
_LEAST_SEEDS = 3
_FILLS = {"abrupt": 0.85, "unresolved": 0.6, "gradual": 0.4, "unfinished": 0.2, "started before": 0.2}
_VERDICTS = tuple(_FILLS)
_MIDDLE = {"shape": "stroke", "angle": 90, "size": 170, "strokeWidth": 2, "stroke": "var(--ink)", "opacity": 1}
_AT = ("t10", "t50", "t90", "t50_before", "t50_after")


def _order(course: CheckpointTables) -> Drawn | None:
    """Rows of curves for each model, the earliest on top."""
    frame = timed_phases(course)
    if frame.empty:
        return None
    every = over_seeds(frame)
    table = _ordered(every)
    shown = "All" if len(table) == len(every) else f"The {len(table)} clearest of {len(every)}"
    seeds = int(table["seeds"].max())
    medians = f"Dots are the {seeds} seeds; marks, bars and order are medians over seeds." if seeds > 1 else "One seed."
    return Drawn(
        data=course[PHASES_TABLE.name].drop(columns=["series"]),
        panels=[
            Panel(spec=_chart(course.axis, own, frame[frame["series"] == series.key], series), title=series.label)
            for series, own in course.each(table)
        ],
        answer=[*_sentences(course, table), *_pairs_sentences(course, frame)],
        caption=f"{shown} curves that change, sorted by the midpoint of the change. {medians}",
    )


def _ordered(table: pd.DataFrame) -> pd.DataFrame:
    """The clearest curves of each line, by their middles; in ties, bounds come last."""
    few = table.sort_values(["rank", "delta_bic"], ascending=[True, False], kind="stable")
    few = few.groupby("series", sort=False).head(_MOST)
    return few.sort_values(["series", "t50", "bound"], kind="stable", ignore_index=True)


def _sentences(course: CheckpointTables, table: pd.DataFrame) -> Iterator[str]:
    for series, own in course.each(table[~table["bound"]]):
        if len(own) < 2:
            continue
        first, last = own.iloc[0], own.iloc[-1]
        stated = [
            f"{row.curve} at update {short(row.t50)} ({short(row.t50_before)} to {short(row.t50_after)})"
            for row in (first, last)
        ]
        yield f"{series.label}: first {stated[0]}, last {stated[1]}."


def _pairs_sentences(course: CheckpointTables, frame: pd.DataFrame) -> Iterator[str]:
    """How many pairs of curves have an order that seeds and checkpoints support."""
    parts = []
    for series, own in course.each(frame[~frame["verdict"].isin(BOUNDS)]):
        found = [order_is_known(one, other) for one, other in _pairs(own)]
        if found:
            parts.append(f"{series.label} {sum(found)} of {len(found)}")
    if parts:
        yield (
            "Pairs of curves in the same order in every seed, with overlapping checkpoints in at most one seed: "
            f"{listed(parts)}."
        )


def _pairs(frame: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Pairs of curves with at least three shared seeds, restricted to these seeds."""
    curves = [own.set_index("seed") for _, own in frame.groupby(["table", "curve"], sort=False)]
    for one, other in combinations([own for own in curves if own.index.is_unique], 2):
        seeds = one.index.intersection(other.index)
        if len(seeds) >= _LEAST_SEEDS:
            yield one.loc[seeds], other.loc[seeds]


def order_is_known(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether one curve precedes the other in every seed, with overlapping brackets in at most one seed.

    If all seeds agree in sign, so does every bootstrap draw over seeds, so no further interval is needed.
    """
    ratio = np.log2(one["t50"].to_numpy(float) / other["t50"].to_numpy(float))
    first, second = (one, other) if ratio.mean() < 0 else (other, one)
    overlap = first["t50_after"].to_numpy(float) > second["t50_before"].to_numpy(float)
    return bool((ratio < 0).all() or (ratio > 0).all()) and int(overlap.sum()) <= 1


def _chart(axis: TimeAxis, table: pd.DataFrame, phases: pd.DataFrame, series: Series) -> dict[str, Any]:
    names = [curve_name(row) for row in table.itertuples()]
    fills = [_FILLS[_VERDICTS[int(rank)]] for rank in table["rank"]]
    rows = table.assign(row=names, end=table["stated"], fill=fills)
    rows = rows.assign(stated=[f"{short(row.t10)}, {short(row.t50)}, {short(row.t90)}" for row in rows.itertuples()])
    low = channel("y", "row:N", sort=names, axis=None, scale={"domain": names}, bandPosition=0.72)
    base = axis.placed(rows[["row", "end", "stated", "fill", *_AT]], series.key, **dict(zip(_AT, _AT, strict=True)))
    labels = calculated(rows[["row", "end"]], stated="datum.row + ': ' + datum.end")
    name_at = {"x": Constant(2), "y": channel("y", "row:N", sort=names, axis=None, bandPosition=0.5)}
    change = {"x": axis.channel("t10"), "x2": "t90:Q", "y": low, "color": Constant("var(--heat-2)")}
    fill = channel("opacity", "fill:Q", scale=None)
    tooltip = tips("row:N|curve", "end:N|verdict", "stated:N|t10, t50, t90")
    bracket = {"x": axis.channel("t50_before"), "x2": "t50_after:Q", "y": low}
    layers = [
        axis.marker([series.key]),
        draw("rule", base, change, strokeWidth=7, opacity=fill, tooltip=tooltip),
        draw("rule", base, bracket, strokeWidth=3.4, color="var(--paper)"),  # visible on bars of any shade
        draw("rule", base, bracket, strokeWidth=1.2, color="var(--ink)"),
        draw("point", base, _MIDDLE, x=axis.channel("t50"), y=low),
        *_dots(axis, phases, names, low, series),
        draw("text", labels, ROW_NAME, name_at, text="stated:N"),
    ]
    return axis.finished(layers, _ROW * len(names) + 4, [series.key])


def _dots(axis: TimeAxis, phases: pd.DataFrame, names: list[str], y: Channel, series: Series) -> list[Layer]:
    """The middle in each seed; hollow if it is a bound."""
    own = phases.assign(row=[curve_name(row) for row in phases.itertuples()])
    own = own[own["row"].isin(names)]
    if len(set(own["seed"])) < 2:
        return []
    own = own.assign(around=[f"{short(row.t50_before)} to {short(row.t50_after)}" for row in own.itertuples()])
    bound = own["verdict"].isin(BOUNDS)
    look = {"size": 26, "color": series.color, "strokeWidth": 1.4, "opacity": 1, "filled": False}
    look |= {"y": y, "tooltip": tips("row:N|curve", "seed:N", "verdict:N", "around:N|t50 lies in")}
    return [
        draw("point", axis.placed(rows, series.key, t50="t50"), look, fill=inside, x=axis.channel("t50"))
        for chosen, inside in ((~bound, series.color), (bound, "var(--paper)"))
        if len(rows := own.loc[chosen, ["row", "seed", "verdict", "around", "t50"]])
    ]


ORDER = DeclaredFigure(
    name="over-training/order",
    id="order-over-training",
    question="What comes first in training, and what last?",
    how_to_read=(
        "Each row is one curve over training, the earliest on top. The bar runs from a tenth to nine tenths of "
        "the change. The upright mark is the midpoint, a dot the midpoint in one seed, and the thin line spans "
        "the checkpoints around it over all seeds. Full bars: abrupt; paler bars: unresolved (checkpoints too "
        "far apart), gradual or unfinished. Hollow dots are bounds: the change is not over, or began before the "
        "first checkpoint.",
        "Two rows whose thin lines overlap cannot be put in order. Many curves change together after warm-up, so it "
        "says little if two of them do. “At warm-up”: within half a doubling of its end, so the schedule "
        "may be the reason.",
    ),
    method=PHASES,
    tables=(PHASES_TABLE.name, PHASES_OVER_SEEDS.name),
    template="stacked.html.jinja",
    draw=_order,
)


# The section over training: a slider through the checkpoints, and the figures that follow it.

_FIGURES = (
    LOSS, PHASES_FIGURE, ORDER, LAYERS, CURVES, TIMES, ALLOCATION, HEADS, PRUNABLE, AGREEMENT, POSITIONS, STAGES,
    SOURCE, FINDINGS, COMPLAINTS,
)  # fmt: skip
OVER_TRAINING = Section(
    id="over-training",
    claims=("time",),
    title="When do layers and heads take their final form?",
    lead="The same measures on the same tokens at many checkpoints: what comes first, what comes last, and what "
    "the schedule alone would explain.",
    names=names_of(_FIGURES),
)


def over_training_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was measured over training."""
    course, left_out = CheckpointTables(tables), []
    if len(course.moments) < 2:
        return None
    # If one figure cannot read its table, the others are still drawn.
    found = [
        unless_damaged(lambda one=one: one.of(course), None, f"the figure {one.name}", left_out) for one in _FIGURES
    ]
    figures = [figure for figure in found if figure is not None]
    if not figures:
        return None
    notes = [note for note in (suspects(course), *left_out) if note]
    frames = [frame for frame in (figure.data for figure in figures) if "series" in frame]
    return replace(
        OVER_TRAINING,
        figures=figures,
        keys=course.models.present(course.clocks, *(frame[["series"]] for frame in frames)),
        notes=notes,
        template="timeline.html.jinja",
        script="over_training.js",
        payload=_timeline(course),
    )


def _timeline(course: CheckpointTables) -> dict[str, Any]:
    labels = {"update": "updates", "tokens": "tokens", "progress": "progress", "lr_share": "learning rate"}
    return {
        "moments": course.moments,
        "stated": [_text(course, update) for update in course.moments],
        "clocks": [{"id": name, "label": labels[name], "title": CLOCKS[name]} for name in course.axis.names],
    }


def _text(course: CheckpointTables, update: int) -> str:
    """`update 1,032 · 1.4M tokens · 21% of training`; tokens only if all models read the same number."""
    own = course.clocks[course.clocks["update"] == update]
    parts = [f"update {update:,}"]
    tokens = own["tokens"].dropna().round()
    if len(set(tokens)) == 1:
        parts.append(f"{short(float(tokens.iloc[0]))} tokens")
    progress = own["progress"].dropna()
    if len(progress) and float(progress.max() - progress.min()) < 0.005:
        share = 100 * float(progress.mean())
        parts.append(f"{share:.2g}% of training" if 0 < share < 1 else f"{share:.0f}% of training")
    return " · ".join(parts)
