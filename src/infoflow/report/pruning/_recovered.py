"""Pruned models that were trained on, beside as many random heads and all heads that were trained on as long."""

from typing import Any

import altair as alt
import pandas as pd

from .._figure import Panel, ReportFigure
from .._in_words import Candidate, clear_cases, extremes_words
from .._numbers import estimate_text
from .._samples import Estimate, Samples
from .._shown_models import ShownModels
from ..forms._chart import CONTROL
from ._beside import (
    POINT,
    Way,
    at_points_of,
    beside_chart,
    gaps_to_control,
    in_first_metric,
    intervals_drawn,
    mean_advantage,
    pairs_of,
    unit_of,
)
from ._charts import METHOD
from ._rows import (
    LEARNED,
    METRICS,
    RECOVERED,
    RECOVERED_ALL,
    RECOVERED_RANDOM,
    UNPRUNED,
    PrunableHeads,
    pools_of,
    quality_curves,
    several,
    signature,
)

_AS_PRUNED = {"strokeDash": alt.StrokeDashValue([2, 3]), "shape": alt.ShapeValue("square")}
_WAYS = (
    Way(key=RECOVERED_RANDOM, name="random heads, trained on", mark="– –", control=True),
    Way(key=LEARNED, name="as pruned", mark="■", look=_AS_PRUNED),
    Way(key=RECOVERED, name="trained on"),
)
_ALL = {**CONTROL, "strokeDash": [8, 3]}
_ALL_NAME = ("— —", "all heads, trained on", "var(--soft)")


def recovered_figure(frame: pd.DataFrame, whole: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One panel for each model and set of heads with points that were trained on.

    Args:
        frame: Curves, with `left` and `size`.
        whole: The rows of models with all heads: before any went, and trained on.
    """
    pairs = pairs_of(frame, RECOVERED, RECOVERED_RANDOM, POINT)
    if pairs.empty:
        return None
    pools = pools_of(pairs, models)
    metric, pairs = in_first_metric(pairs, pools)
    frame = at_points_of(frame.loc[frame["way"].isin([way.key for way in _WAYS])], pairs, POINT)
    curves = quality_curves(frame)
    panels = [
        Panel(
            spec=beside_chart(pool.of(curves), pool, metric[pool], curves, _WAYS, _levels(whole, pool, metric[pool])),
            title=pool.title,
        )
        for pool in pools
    ]
    return ReportFigure(
        id="pruning-recovered",
        question="Do pruned models come back when they are trained on?",
        answer=[_sentence(pool.of(pairs), whole, pool, metric[pool]) for pool in pools],
        words=_words({pool: pool.of(pairs) for pool in pools}, metric),
        panels=panels,
        caption=f"{several(frame, bands=intervals_drawn(pairs))}; {int(frame['count'].median()):,} sentences behind "
        f"each point.{signature(frame)}",
        how_to_read=[
            "Squares: the model as gates pruned it. Dots: the same, trained on without gates, at a rate that rises "
            "and falls again. Grey and short dashes, the control: as many heads drawn at random from the model before, "
            "trained on at once for as many updates as gates and what follows take together. Dotted: the model before "
            "any head went; long dashes: all of its heads, trained on as long.",
            "From squares to dots: what the rest of the model had not followed yet. From grey to dots: what it is "
            "worth which heads are left; it would be surprising if random ones were better. Only beside the long "
            "dashes does it show what the missing heads cost: more training helps all of them.",
        ],
        method=METHOD,
        data=curves,
        tables=("pruning",),
        findings=("heads:H2",),
    )


def _levels(whole: pd.DataFrame, pool: PrunableHeads, metric: str) -> list[tuple[float, dict[str, Any], Any]]:
    values = _whole(whole, RECOVERED_ALL, pool, metric)["value"]
    return [(float(values.mean()), _ALL, _ALL_NAME)] if len(values) else []


def _whole(whole: pd.DataFrame, way: str, pool: PrunableHeads, metric: str) -> pd.DataFrame:
    rows = whole.loc[(whole["method"] == way) & (whole["metric"] == metric)]
    return rows.loc[rows["series"] == pool.series.key]


def _words(pairs: dict[PrunableHeads, pd.DataFrame], metric: dict[PrunableHeads, str]) -> str:
    """By how much the heads of gates are better than as many random ones, in the first metric."""
    first = next(name for name in METRICS if name in metric.values())
    found = [
        Candidate(f"for {pool.heads} of {pool.series.label}", mean_advantage(gaps_to_control(rows), first))
        for pool, rows in pairs.items()
        if metric[pool] == first
    ]
    what = "trained on, the advantage of the heads that gates left over random ones"
    return extremes_words(what, found, unit_of(first), end=clear_cases(found))


def _sentence(pairs: pd.DataFrame, whole: pd.DataFrame, pool: PrunableHeads, metric: str) -> str:
    """How far the model is from what it was, from random heads, and from all heads."""
    unit, num = unit_of(metric), int(pairs["point"].nunique())
    left = sorted(set(pairs.groupby("point")["left"].mean().round().astype(int)))
    few = f"{left[0]}" if len(left) == 1 else f"{left[0]} to {left[-1]}"
    parts = [_told(mean_advantage(gaps_to_control(pairs), metric), unit, "as many random heads, trained on as long")]
    names = {UNPRUNED: "the model before any head went", RECOVERED_ALL: "all heads, trained on as long"}
    for way, name in names.items():
        rows = _whole(whole, way, pool, metric)
        if len(rows):
            gaps = [Samples.of(own) - Samples.of(rows) for _, own in pairs.groupby("point")]
            parts.append(_told(mean_advantage(gaps, metric), unit, name))
    points = f" (means over {num} points)" if num > 1 else ""
    *most, last = parts
    return (
        f"{pool.subject}: with {few} of {int(pairs['size'].iloc[0])} left and trained on{points}, the model is "
        f"{', '.join(most)}{' and ' if most else ''}{last}."
    )


def _told(estimate: Estimate, unit: str, than: str) -> str:
    better = "better" if estimate.value > 0 else "worse"
    sure = "" if estimate.sign or not estimate.has_interval else " (which may be chance)"
    shown = estimate if estimate.value > 0 else estimate.negated()
    return f"{estimate_text(shown, unit)} {better} than {than}{sure}"
