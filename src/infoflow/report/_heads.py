"""What heads do: the layer × head map with a choice of statistics, and whether positional heads are confident."""

import math
from dataclasses import dataclass

import altair as alt
import pandas as pd

from infoflow.results import RunFolder

from ._figure import Figure, Panel, Section
from ._head_map import head_map_figure
from ._language import Cast, Series
from ._layer_chart import color_scale, lit, shape_scale
from ._numbers import estimate_text, number
from ._samples import Estimate, Samples
from ._theme import vega_config

_POSITIONAL = 0.90  # Voita et al. 2019: share of queries whose strongest key is at one offset
_TABLES = ("head_confidence", "head_entropy", "head_positional")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tally:
    """Positional heads of one line: how many, and the mean confidence of these and of the others."""

    positional: int
    heads: int
    confident: Estimate
    others: Estimate


def heads_section(run: RunFolder, cast: Cast) -> Section | None:
    """The section, or None where the run measured no heads."""
    frames = {name: cast.named(run.tables[name]) for name in _TABLES if name in run.tables and len(run.tables[name])}
    if not frames:
        return None
    figures = [head_map_figure(frames, cast)]
    if {"head_confidence", "head_positional"} <= set(frames):
        pairs = _positional_frame(cast.main(frames["head_confidence"]), cast.main(frames["head_positional"]))
        if len(pairs):
            figures.append(_positional_figure(pairs, cast))
    used = {key for frame in frames.values() for key in frame["series"]}
    return Section(
        id="heads",
        title="What do attention heads do?",
        lead="A head is one pattern of looking. Some always look at a neighbour, some pick one token, some spread over "
        "the sentence.",
        figures=figures,
        keys=[series for series in cast.series if series.key in used],
        untrained=any((~frame["trained"]).any() for frame in frames.values()),
    )


def _positional_frame(confidence: pd.DataFrame, positional: pd.DataFrame) -> pd.DataFrame:
    """One row per self-attention head: its share at the better of offsets −1 and +1, and its confidence."""
    keys = ["series", "model", "seed", "trained", "stack", "kind", "layer", "head"]
    near = positional[(positional["kind"] == "self") & positional["offset"].isin([-1, 1])]
    best = near.sort_values("value").drop_duplicates(keys, keep="last")
    named = {"value": "share", "low": "share_low", "high": "share_high", "baseline": "share_baseline"}
    best = best[[*keys, "offset", *named]].rename(columns=named)
    columns = [*keys, "value", "low", "high", "baseline", "count"]
    return confidence[columns].merge(best, on=keys).rename(columns={"value": "confidence", "baseline": "uniform"})


def _positional_figure(pairs: pd.DataFrame, cast: Cast) -> Figure:
    series = [s for s in cast.series if s.key in set(pairs["series"])]
    seeds = pairs["seed"].nunique()
    panels = [Panel(spec=_scatter(pairs[pairs["series"] == s.key], s), title=s.label) for s in series]
    return Figure(
        id="head-positions",
        question="Are the heads that look at a neighbour the confident ones?",
        answer=[_tally_sentence(pairs, s) for s in series],
        panels=panels,
        caption=f"Each point is a head{f' ({seeds} seeds)' if seeds > 1 else ''}; whiskers are 95% intervals from a "
        f"bootstrap over sentences, mostly smaller than the points; {int(pairs['count'].median()):,} queries per head. "
        "Grey crosses: the untrained model." * bool((~pairs["trained"]).any()),
        how_to_read=[
            "Across: how often a head's strongest key is the token just before or just after. Up: its mean strongest "
            "weight (confidence).",
            f"The dashed lines: {_POSITIONAL:.0%} of queries, the usual threshold of a positional head; and the confidence "
            "of a head that spreads its weight evenly.",
            "It would be surprising to find points at the lower right: a head that always picks a neighbour, but barely.",
        ],
        method="head-positional",
        data=pairs.drop(columns="model"),
        tables=("head_confidence", "head_positional"),
        findings=("heads:V8",),
    )


def _tally(pairs: pd.DataFrame, series: Series) -> _Tally:
    own = pairs[(pairs["series"] == series.key) & pairs["trained"]]
    is_positional = own["share"] >= _POSITIONAL
    means = [own[mask].groupby("seed")["confidence"].mean() for mask in (is_positional, ~is_positional)]
    positional, others = (
        Samples(values=dict(mean.items()), replicates={}, stored=(math.nan, math.nan), count=0).estimate()
        for mean in means
    )
    return _Tally(positional=int(is_positional.sum()), heads=len(own), confident=positional, others=others)


def _tally_sentence(pairs: pd.DataFrame, series: Series) -> str:
    tally = _tally(pairs, series)
    name = series.label[:1].upper() + series.label[1:]
    seeds = pairs.loc[pairs["series"] == series.key, "seed"].nunique()
    over = f" over {seeds} seeds" if seeds > 1 else ""
    if not tally.positional:
        best = pairs.loc[(pairs["series"] == series.key) & pairs["trained"], "share"].max()
        return (
            f"{name} has no positional head among {tally.heads}{over}: "
            f"the best looks at one neighbour in {number(100 * best, 0)}% of cases."
        )
    verb = "is" if tally.positional == 1 else "are"
    return (
        f"In {series.label}, {tally.positional} of {tally.heads} heads{over} {verb} positional; their mean confidence is "
        f"{estimate_text(tally.confident)}, against {estimate_text(tally.others)} for the others."
    )


def _scatter(pairs: pd.DataFrame, series: Series) -> dict:
    trained, untrained = pairs[pairs["trained"]], pairs[~pairs["trained"]]
    unit = alt.Scale(domain=[0, 1])
    x = alt.X("share:Q", title="share of queries that look at one neighbour", scale=unit, axis=alt.Axis(tickCount=5))
    y = alt.Y("confidence:Q", title="confidence (mean strongest weight)", scale=unit, axis=alt.Axis(tickCount=5))
    color = alt.Color("series:N", scale=color_scale([series]), legend=None)
    shape = alt.Shape("series:N", scale=shape_scale([series]), legend=None)
    tooltip = ["series:N", "seed:Q", "layer:Q", "head:Q", "offset:Q"]
    tooltip += [alt.Tooltip("share:Q", format=".3f"), alt.Tooltip("confidence:Q", format=".3f")]
    base = alt.Chart(trained)
    layers = [
        alt.Chart(untrained).mark_point(shape="cross", size=14, color="var(--control)", opacity=0.7).encode(x=x, y=y),
        _threshold(pd.DataFrame([{"share": _POSITIONAL}])).encode(x=x),
        _threshold(pd.DataFrame([{"confidence": float(trained["uniform"].mean())}])).encode(y=y),
        base.mark_rule(strokeWidth=1, opacity=0.5).encode(
            x=alt.X("share_low:Q", title=x["title"], scale=unit), x2="share_high:Q", y=y, color=color
        ),
        base.mark_rule(strokeWidth=1, opacity=0.5).encode(
            x=x, y=alt.Y("low:Q", title=y["title"], scale=unit), y2="high:Q", color=color
        ),
        base.mark_point(filled=True, size=32).encode(
            x=x, y=y, color=color, shape=shape, tooltip=tooltip, opacity=lit(0.75)
        ),
    ]
    chart = alt.layer(*layers).add_params(alt.param(name="highlight", value=""))
    spec = chart.properties(width="container", height=240).to_dict()
    return {**spec, "config": vega_config(), "padding": {"left": 4, "top": 22, "right": 10, "bottom": 4}}


def _threshold(at: pd.DataFrame) -> alt.Chart:
    return alt.Chart(at).mark_rule(color="var(--control)", strokeDash=[4, 3])
