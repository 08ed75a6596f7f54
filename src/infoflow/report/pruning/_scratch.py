"""Pruned models beside models that had the same heads from the start."""

import pandas as pd

from .._figure import Panel, ReportFigure
from .._in_words import Candidate, clear_cases, extremes_words
from .._numbers import estimate_text
from .._shown_models import ShownModels
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
from ._rows import LEARNED, METRICS, SCRATCH, PrunableHeads, pools_of, quality_curves, several, signature

_ON = [*POINT, "draw"]
_WAYS = (Way(key=SCRATCH, name="from scratch", mark="– –", control=True), Way(key=LEARNED, name="pruned"))


def scratch_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One panel for each model and set of heads with points that were also trained from scratch."""
    pairs = pairs_of(frame, LEARNED, SCRATCH, _ON)
    if pairs.empty:
        return None
    pools = pools_of(pairs, models)
    metric, pairs = in_first_metric(pairs, pools)
    frame = at_points_of(frame.loc[frame["way"].isin([LEARNED, SCRATCH])], pairs, _ON)
    curves = quality_curves(frame)
    charts = {pool: beside_chart(pool.of(curves), pool, metric[pool], curves, _WAYS) for pool in pools}
    return ReportFigure(
        id="pruning-scratch",
        question="Could a model with so few heads have been trained from the start?",
        answer=[_sentence(pool.of(pairs), pool, metric[pool]) for pool in pools],
        words=_words({pool: pool.of(pairs) for pool in pools}, metric),
        panels=[Panel(spec=chart, title=pool.title) for pool, chart in charts.items()],
        caption=f"{several(frame, bands=intervals_drawn(pairs))}; {int(frame['count'].median()):,} sentences behind "
        f"each point.{signature(frame)}",
        how_to_read=[
            "In colour: the model that learned gates pruned. Grey and dashed, the control: a model that had exactly "
            "these heads from its first update on, with as many updates as the model had before pruning. Dotted: the "
            "model before any head went.",
            "If the coloured line or point lies higher in BLEU (lower in loss), all heads were of use for learning, "
            "though few are for the result. It would be surprising if training from scratch were better.",
        ],
        method=METHOD,
        data=curves,
        tables=("pruning",),
        findings=("heads:V2",),
    )


def _words(pairs: dict[PrunableHeads, pd.DataFrame], metric: dict[PrunableHeads, str]) -> str:
    """By how much pruned models are better than those trained so from the start, in the first metric."""
    first = next(name for name in METRICS if name in metric.values())
    found = [
        Candidate(f"for {pool.heads} of {pool.series.label}", mean_advantage(gaps_to_control(rows), first))
        for pool, rows in pairs.items()
        if metric[pool] == first
    ]
    return extremes_words("the pruned model's advantage", found, unit_of(first), end=clear_cases(found))


def _sentence(pairs: pd.DataFrame, pool: PrunableHeads, metric: str) -> str:
    """Which of the two is better, and by how much."""
    estimate, num = mean_advantage(gaps_to_control(pairs), metric), int(pairs["point"].nunique())
    better = "better" if estimate.value > 0 else "worse"
    sure = "" if estimate.sign or not estimate.has_interval else ", which may be chance"
    shown = estimate if estimate.value > 0 else estimate.negated()
    points = f", the mean over {num} points" if num > 1 else ""
    return f"{pool.subject}: the pruned model is {better} by {estimate_text(shown, unit_of(metric))}{points}{sure}."
