"""Training dynamics: which parts of the models lowered the loss, when, and which raised it."""

import math
from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.report._bands import band_words, seed_bands
from infoflow.report._declared import DeclaredFigure, Drawn, names_of
from infoflow.report._figure import Panel, Section
from infoflow.report._in_words import Candidate, extreme, percent_over_models, sentence
from infoflow.report._model_tables import ModelTables
from infoflow.report._numbers import listed, number
from infoflow.report._series import Series
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import HEIGHT, NAME, amount, lit, one_at_a_time, tips, with_field
from infoflow.report.forms._lines import lines, looks_of
from infoflow.report.forms._marks import draw

from ..measures import (
    ALLOCATION_CORPORA,
    ALLOCATION_HISTOGRAM,
    ALLOCATION_RELIABILITY,
    ALLOCATION_SIMILARITY,
    ALLOCATION_WINDOWS,
)
from ._allocation_heads import HEADS
from ._bars import BARS
from ._histogram import HISTOGRAM
from ._hurting import HURTING
from ._rows import LOSS_CHANGE, SETS, by_set, of_sets, on_train
from ._similarity import CORPORA, OBJECTIVES

_BY_SET, _ON_TRAIN = ("windows", "steps", "heads"), ("groups", "hurting", "reliability")
_TABLES = tuple(f"allocation_{name}" for name in (*_BY_SET, *_ON_TRAIN))


def _loss(windows: dict[str, pd.DataFrame], reliability: pd.DataFrame, models: ShownModels) -> Drawn:
    curves = {name: _curves(frame) for name, frame in windows.items()}
    table = curves["train"]
    series = models.present(table)
    residuals = reliability[reliability["statistic"] == "residual of the total"]
    points = int(table.groupby("series")["update"].nunique().max())
    return Drawn(
        data=of_sets(curves),
        panels=[Panel(spec=_loss_chart(list(curves.values()), series))],
        answer=[_loss_sentence(table, residuals, series), *_held_out_sentence(curves, series)],
        words=_loss_words(residuals, series),
        caption=f"Loss on fixed sentences with frozen noise and without dropout. "
        f"{band_words(int(table['seeds'].max()), over='')}. {points} points.",
        payload={"sets": [SETS[name] for name in curves]},
    )


def _curves(windows: pd.DataFrame) -> pd.DataFrame:
    """Loss and its reconstruction after each window: mean over seeds and its interval."""
    windows = windows.sort_values(["series", "seed", "window"])
    runs = windows.groupby(["series", "seed"])
    rebuilt = runs["loss_start"].transform("first") + runs["allocated"].cumsum()
    starts = runs.head(1).assign(end=lambda f: f["begin"], loss_end=lambda f: f["loss_start"])
    points = pd.concat([windows.assign(rebuilt=rebuilt), starts.assign(rebuilt=starts["loss_start"])])
    keys = ["series", "end"]
    rebuilt = points.groupby(keys, sort=True)["rebuilt"].mean().reset_index()
    table = rebuilt.merge(seed_bands(points, keys, "loss_end", positive=True), on=keys)
    return table.rename(columns={"end": "update"})


def _loss_sentence(table: pd.DataFrame, residuals: pd.DataFrame, series: list[Series]) -> str:
    used = residuals.groupby(["series", "rule"], sort=False)["value"].mean()
    parts = []
    for one in series:
        own = table[table["series"] == one.key]
        rules = used[one.key]
        first = f"; first order: {_percent(rules['first-order'])}" if "first-order" in rules else ""
        fall = float(own["value"].iloc[0] - own["value"].iloc[-1])
        parts.append(
            f"{one.label} {_percent(rules.iloc[0])} of a fall of {number(fall)} nats ({rules.index[0]}{first})"
        )
    return f"Error of the summed allocations: {listed(parts)}."


def _loss_words(residuals: pd.DataFrame, series: list[Series]) -> str:
    """The error of the summed allocations under the rule that was used, compared with the first order."""
    used, first = [], []
    for one in series:
        own = residuals[residuals["series"] == one.key]
        for place, (rule, rows) in enumerate(own.groupby("rule", sort=False)):
            off = percent_over_models(rows.groupby("seed")["value"].mean().to_dict(), (0.0, math.inf))
            told = Candidate(f"in {one.label}", off)
            used += [told] if place == 0 else []
            first += [told] if rule == "first-order" and place else []
    worst, plain = extreme(used), extreme(first, least=True)
    if worst is None:
        return ""
    beside = f"; to first order, the error is at least {plain.told('%')}" if plain else ""
    most = "at most " if len(used) > 1 else ""
    said = f"the sum of all allocations misses the loss change by {most}{worst.told('%')}{beside}"
    return sentence(said.replace(" %", "%"))


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.2g}%"


def _held_out_sentence(curves: dict[str, pd.DataFrame], series: list[Series]) -> list[str]:
    """How much of the loss reduction remains on held-out sentences."""
    if "held-out" not in curves:
        return []
    parts = []
    for one in series:
        falls = [
            float(own["value"].iloc[0] - own["value"].iloc[-1])
            for own in (curve[curve["series"] == one.key] for curve in curves.values())
        ]
        parts.append(f"{one.label} {number(falls[1])} nats ({100 * falls[1] / falls[0]:.0f}% of it)")
    return [f"On held-out sentences the loss fell by {listed(parts)}."]


def _loss_chart(tables: list[pd.DataFrame], series: list[Series]) -> dict[str, Any]:
    """The curves of one set of sentences at a time."""
    table = pd.concat([table.assign(set=number) for number, table in enumerate(tables)], ignore_index=True)
    values = table[["low", "high", "rebuilt"]].to_numpy(dtype=float)
    at = {
        "x": amount("x", "update", "updates", ticks=6, format="~s", zero=None),
        "y": amount("y", "value", "loss (nats per item)", [values.min(), values.max()], ticks=6, nice=True),
    }
    look = looks_of(series)
    tooltip = tips("series:N", "update:Q", "value:Q|loss|.3f", "rebuilt:Q|from allocations|.3f")
    dots = {"x": at["x"], "y": with_field(at["y"], "rebuilt"), "color": look["color"], "opacity": lit()}
    rebuilt = draw("point", table, dots, size=14, filled=True)
    ends = table.loc[table.groupby(["set", "series"])["update"].idxmax()]
    ends = ends.assign(name=ends["series"].map({one.key: one.label for one in series}))
    layers = [
        *lines(table, at, look, width=2.0, size=0, touch=200, tooltip=tooltip, over=[rebuilt]),
        draw("text", ends, NAME, at, align="right", dy=-8, text="name:N", color=look["color"], opacity=lit(1.0, 0.25)),
    ]
    return one_at_a_time(layers, HEIGHT)


LOSS = DeclaredFigure(
    name="dynamics/loss",
    id="allocation-loss",
    question="Do the parts add up to the loss?",
    how_to_read=(
        "Solid: the loss. Dots: the loss at the start plus all allocations so far. Where dots leave the line, "
        "the gradient changes more between two updates than the quadrature rule can follow.",
        "Losses of different objectives cannot be compared with each other.",
    ),
    method=LOSS_CHANGE,
    tables=(ALLOCATION_WINDOWS.name, ALLOCATION_RELIABILITY.name),
    findings=("dynamics:L6",),
    template="evaluated.html.jinja",
    draw=_loss,
)


DYNAMICS = Section(
    id="dynamics",
    title="Which parts of the model did the learning?",
    lead="Each update moves every parameter a little, and the loss falls or rises. Loss change allocation divides "
    "that change among the parameters, so that their parts add up to it exactly.",
    names=names_of([BARS, LOSS, HEADS, HURTING, HISTOGRAM, OBJECTIVES, CORPORA]),
)


def dynamics_section(tables: ModelTables) -> Section | None:
    """The section, or None if no training was recorded."""
    models = tables.models
    if ALLOCATION_CORPORA.name in tables:
        found = CORPORA.of(tables[ALLOCATION_CORPORA.name], models)
        return replace(DYNAMICS, figures=[found], keys=list(models.series))
    if len(tables.some(_TABLES)) < len(_TABLES):
        return None
    windows, steps, heads = (by_set(tables[f"allocation_{name}"]) for name in _BY_SET)
    groups, hurting, reliability = (on_train(tables[f"allocation_{name}"]) for name in _ON_TRAIN)
    if windows["train"].empty:
        return None
    figures = [
        BARS.of(steps, groups, models),
        LOSS.of(windows, reliability, models),
        HEADS.of(heads, models),
        HURTING.of(hurting, reliability, models),
        *(HISTOGRAM.of(on_train(frame), models) for frame in tables.some([ALLOCATION_HISTOGRAM.name]).values()),
        *(OBJECTIVES.of(frame, models) for frame in tables.some([ALLOCATION_SIMILARITY.name]).values()),
    ]
    return replace(DYNAMICS, figures=[one for one in figures if one], keys=models.present(windows["train"]))
