"""Pruned models beside models that had the same heads from the start."""

from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from infoflow.foundation import interval

from .._figure import Panel, ReportFigure
from .._in_words import Candidate, clear_cases, extremes_words
from .._numbers import estimate_text
from .._samples import Estimate, Samples
from .._shown_models import ShownModels
from ..forms._chart import CONTROL, amount, finished, lit, tips, with_field
from ..forms._hollow import point_style
from ..forms._lines import level, lines
from ..forms._names import names_above
from ._charts import METHOD, SCRATCH_NAME, UNPRUNED, UNPRUNED_NAME, heads_left, span_of
from ._rows import LEARNED, METRICS, SCRATCH, PrunableHeads, metrics_of, pools_of, quality_curves, several, signature

_HEIGHT = 220
_ASIDE = 4  # pixels
_KEYS = ["series", "scope", "seed", "draw", "point"]


def scratch_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One panel for each model and set of heads with points that were also trained from scratch."""
    frame = frame.loc[frame["way"].isin([LEARNED, SCRATCH]) & frame["metric"].isin(METRICS)]
    frame = frame.loc[frame["left"] < frame["size"]]
    pairs = frame.loc[frame["way"] == LEARNED].merge(
        frame.loc[frame["way"] == SCRATCH], on=[*_KEYS, "metric"], suffixes=("", "_scratch")
    )
    if pairs.empty:
        return None
    pools = pools_of(pairs, models)
    metric = {pool: metrics_of(pool.of(pairs))[0] for pool in pools}
    pairs = pd.concat([pool.of(pairs).loc[lambda own, pool=pool: own["metric"] == metric[pool]] for pool in pools])
    keys = [*_KEYS, "metric"]
    frame = frame.loc[pd.MultiIndex.from_frame(frame[keys]).isin(pd.MultiIndex.from_frame(pairs[keys]))]
    curves = quality_curves(frame)
    return ReportFigure(
        id="pruning-scratch",
        question="Could a model with so few heads have been trained from the start?",
        answer=[_sentence(pool.of(pairs), pool, metric[pool]) for pool in pools],
        words=_words({pool: pool.of(pairs) for pool in pools}, metric),
        panels=[Panel(spec=_chart(pool.of(curves), pool, metric[pool], curves), title=pool.title) for pool in pools],
        caption=f"{several(frame, bands=_bands(pairs))}; {int(frame['count'].median()):,} sentences behind each point."
        f"{signature(frame)}",
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


def _bands(pairs: pd.DataFrame) -> str:
    """How intervals are drawn: a single point has a whisker."""
    points = set(pairs.groupby(["series", "scope"])["point"].nunique())
    return "whiskers" if points == {1} else "bands and whiskers" if 1 in points else "bands"


def _words(pairs: dict[PrunableHeads, pd.DataFrame], metric: dict[PrunableHeads, str]) -> str:
    """By how much pruned models are better than those trained so from the start, in the first metric."""
    first = next(name for name in METRICS if name in metric.values())
    own = {pool: rows for pool, rows in pairs.items() if metric[pool] == first}
    found = [
        Candidate(f"for {pool.heads} of {pool.series.label}", _advantage(rows, first)) for pool, rows in own.items()
    ]
    return extremes_words("the pruned model's advantage", found, _unit(first), end=clear_cases(found))


def _unit(metric: str) -> str:
    return "BLEU" if metric == "bleu" else "nats per token"


def _advantage(pairs: pd.DataFrame, metric: str) -> Estimate:
    """Mean difference over the points, paired by seed and sentence; above 0 the pruned model is better."""
    sign, gaps = 1 if metric == "bleu" else -1, _gaps(pairs)
    seeds = sorted(set.intersection(*(set(gap.values) for gap in gaps)))
    replicates = _replicates(gaps, seeds, sign)
    mean = Samples(
        values={seed: sign * sum(gap.values[seed] for gap in gaps) / len(gaps) for seed in seeds},
        replicates=replicates,
        intervals={seed: tuple(interval(drawn)) for seed, drawn in replicates.items()},
        count=0,
    )
    return mean.estimate()


def _gaps(pairs: pd.DataFrame) -> list[Samples]:
    """Of each point, the pruned model less the one trained so from the start."""
    return [
        Samples.of(own) - Samples.of(own.assign(value=own["value_scratch"], replicates=own["replicates_scratch"]))
        for _, own in pairs.groupby("point")
    ]


def _sentence(pairs: pd.DataFrame, pool: PrunableHeads, metric: str) -> str:
    """Which of the two is better, and by how much."""
    estimate, num = _advantage(pairs, metric), int(pairs["point"].nunique())
    better = "better" if estimate.value > 0 else "worse"
    sure = "" if estimate.sign or not estimate.has_interval else ", which may be chance"
    shown = estimate if estimate.value > 0 else estimate.negated()
    points = f", the mean over {num} points" if num > 1 else ""
    return f"{pool.subject}: the pruned model is {better} by {estimate_text(shown, _unit(metric))}{points}{sure}."


def _replicates(gaps: list[Samples], seeds: list, sign: int) -> dict[object, np.ndarray]:
    """Of each seed's mean, over sentences."""
    found = {}
    for seed in seeds:
        drawn = [gap.replicates[seed] for gap in gaps if seed in gap.replicates]
        if len(drawn) == len(gaps):
            found[seed] = sign * sum(drawn) / len(drawn)
    return found


def _chart(own: pd.DataFrame, pool: PrunableHeads, metric: str, curves: pd.DataFrame) -> dict[str, Any]:
    name, unit = METRICS[metric]
    columns = ["left", "value", "low", "high"]
    own = own.assign(**own[columns].round(3))
    at = {
        "x": heads_left(int(own["size"].iloc[0])),
        "y": alt.Y(**amount("value", f"{name}{unit}", span_of(pool, curves))),
    }
    pruned, scratch = (own.loc[own["way"] == way, [*columns, "seeds"]] for way in (LEARNED, SCRATCH))
    tooltip = tips("left:Q|heads left", f"value:Q|{name}|.3f")
    single = len(pruned) == 1  # no line and no band, but two points with whiskers, side by side
    grey = {"color": alt.ColorValue("var(--control)"), "strokeDash": alt.StrokeDashValue(CONTROL["strokeDash"])}
    color = {"color": alt.ColorValue(pool.series.color)}
    drawn = [
        (scratch, grey, _ASIDE, 26, lambda opacity=1.0: alt.OpacityValue(opacity)),
        (pruned, color, -_ASIDE, 30, partial(lit, of=pool.series)),
    ]
    layers: list[Any] = []
    for rows, look, aside, size, light in drawn:
        if single:
            layers += _whiskers(rows, at, look, aside, size, light, tooltip)
        else:
            width = 2 if look is color else 1.6
            layers += lines(rows, at, look, light=light, band=0.15, width=width, size=size, touch=0, tooltip=tooltip)
    layers.insert(len(layers) // 2, level(float(own["unpruned"].mean()), UNPRUNED, y=at["y"]))
    scratch_name = ("●", *SCRATCH_NAME[1:]) if single else SCRATCH_NAME
    names = names_above([UNPRUNED_NAME, scratch_name, ("●", "pruned", pool.series.color)])
    return finished([*layers, names], _HEIGHT)


def _whiskers(
    rows: pd.DataFrame, at: dict[str, Any], look: dict[str, Any], aside: int, size: int, light: Any, tooltip: list
) -> list[Any]:
    """A single point with its interval, so many pixels aside."""
    own = {"color": look["color"], "opacity": light()}
    known = alt.Chart(rows.dropna(subset=["low", "high"])).mark_rule(strokeWidth=1.5, xOffset=aside)
    marks = alt.Chart(rows).mark_point(size=size, xOffset=aside, **point_style(rows))
    return [
        known.encode(x=at["x"], y=with_field(at["y"], "low"), y2=alt.Y2("high:Q"), **own),
        marks.encode(**at, **own, tooltip=tooltip),
    ]
