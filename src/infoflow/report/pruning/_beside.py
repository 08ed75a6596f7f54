"""Ways of pruning beside each other at the same points of a sweep: how far apart they are, and all in one panel."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from infoflow.foundation import interval

from .._samples import Estimate, Samples
from ..forms._chart import CONTROL, amount, finished, lit, tips, with_field
from ..forms._hollow import point_style
from ..forms._lines import level, lines
from ..forms._names import names_above
from ._charts import UNPRUNED, UNPRUNED_NAME, heads_left, span_of
from ._rows import METRICS, PrunableHeads, metrics_of

POINT = ["series", "scope", "seed", "point"]
"""What a point of a sweep is told by, whichever way it was drawn."""
_HEIGHT = 220
_ASIDE = 4  # pixels, half of those between marks of one point
_OTHER = "_other"  # behind the control's columns


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """How a way of pruning is drawn and called."""

    key: str
    name: str
    mark: str = "●"  # before its name
    control: bool = False  # grey and dashed
    look: dict[str, Any] | None = None  # of its line and marks, beside the colour


def pairs_of(frame: pd.DataFrame, way: str, control: str, on: Sequence[str]) -> pd.DataFrame:
    """The points at which in every seed some heads went and both are there; the control's columns end in `_other`."""
    frame = frame.loc[frame["metric"].isin(METRICS) & (frame["left"] < frame["size"])]
    own, other = (frame.loc[frame["way"] == one] for one in (way, control))
    pairs = own.merge(other, on=[*on, "metric"], suffixes=("", _OTHER))
    seeds = pairs.groupby(["series", "scope", "metric"])["seed"].transform("nunique")
    there = pairs.groupby(["series", "scope", "metric", "point"])["seed"].transform("nunique")
    return pairs.loc[there == seeds]


def in_first_metric(pairs: pd.DataFrame, pools: Sequence[PrunableHeads]) -> tuple[dict[PrunableHeads, str], Any]:
    """The metric that each set of heads is told in, and the pairs in it."""
    metric = {pool: metrics_of(pool.of(pairs))[0] for pool in pools}
    return metric, pd.concat([pool.of(pairs).loc[lambda own, at=pool: own["metric"] == metric[at]] for pool in pools])


def at_points_of(frame: pd.DataFrame, pairs: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """The rows at the points, and in the metric, of the pairs."""
    keys = [*on, "metric"]
    return frame.loc[pd.MultiIndex.from_frame(frame[keys]).isin(pd.MultiIndex.from_frame(pairs[keys]))]


def gaps_to_control(pairs: pd.DataFrame) -> list[Samples]:
    """Of each point, the way less its control."""
    return [
        Samples.of(own) - Samples.of(own.assign(value=own[f"value{_OTHER}"], replicates=own[f"replicates{_OTHER}"]))
        for _, own in pairs.groupby("point")
    ]


def mean_advantage(gaps: Sequence[Samples], metric: str) -> Estimate:
    """Mean difference over points, paired by seed and sentence; above 0 the first is better."""
    sign = 1 if metric == "bleu" else -1
    seeds = sorted(set.intersection(*(set(gap.values) for gap in gaps)))
    replicates = _replicates(gaps, seeds, sign)
    mean = Samples(
        values={seed: sign * sum(gap.values[seed] for gap in gaps) / len(gaps) for seed in seeds},
        replicates=replicates,
        intervals={seed: tuple(interval(drawn)) for seed, drawn in replicates.items()},
        count=0,
    )
    return mean.estimate()


def unit_of(metric: str) -> str:
    """What differences are told in."""
    return "BLEU" if metric == "bleu" else "nats per token"


def intervals_drawn(pairs: pd.DataFrame) -> str:
    """How intervals are drawn: a single point has a whisker."""
    points = set(pairs.groupby(["series", "scope"])["point"].nunique())
    return "whiskers" if points == {1} else "bands and whiskers" if 1 in points else "bands"


def beside_chart(
    own: pd.DataFrame,
    pool: PrunableHeads,
    metric: str,
    curves: pd.DataFrame,
    ways: Sequence[Way],
    levels: Sequence[tuple[float, dict[str, Any], tuple[str, str, str]]] = (),
) -> dict[str, Any]:
    """The panel of a set of heads: the ways, the last on top, the unpruned model, and more levels with their names."""
    name, unit = METRICS[metric]
    columns = ["left", "value", "low", "high"]
    own = own.assign(**own[columns].round(3))
    at = {
        "x": heads_left(int(own["size"].iloc[0])),
        "y": alt.Y(**amount("value", f"{name}{unit}", _span(pool, curves, levels))),
    }
    tooltip = tips("left:Q|heads left", f"value:Q|{name}|.3f")
    drawn = [own.loc[own["way"] == way.key, [*columns, "seeds"]] for way in ways]
    single = len(drawn[-1]) == 1  # no line and no band, but points with whiskers, side by side
    layers: list[Any] = []
    for place, (way, rows) in enumerate(zip(ways, drawn, strict=True)):
        look, light, width, size = _drawn_as(way, pool)
        if single:
            aside = _ASIDE * (len(ways) - 1 - 2 * place)
            layers += _whiskers(rows, at, look, aside, size, light, tooltip)
        else:
            layers += lines(rows, at, look, light=light, band=0.15, width=width, size=size, touch=0, tooltip=tooltip)
    across = [level(float(own["unpruned"].mean()), UNPRUNED, y=at["y"])]
    across += [level(value, style, y=at["y"]) for value, style, _ in levels]
    middle = len(layers) // 2
    layers[middle:middle] = across
    names = [UNPRUNED_NAME, *(told for _, _, told in levels)]
    names += [_named(way, pool, single) for way in ways]
    return finished([*layers, names_above(names)], _HEIGHT)


def _span(pool: PrunableHeads, curves: pd.DataFrame, levels: Sequence[tuple[float, Any, Any]]) -> list[float]:
    """The panel's scale of quality, with all levels in it."""
    low, high = span_of(pool, curves)
    margin = 0.05 * (high - low)
    return [
        min([low, *(value - margin for value, _, _ in levels)]),
        max([high, *(value + margin for value, _, _ in levels)]),
    ]


def _drawn_as(way: Way, pool: PrunableHeads) -> tuple[dict[str, Any], Any, float, int]:
    """Encodings, light, width and size of marks."""
    if way.control:
        grey = {"color": alt.ColorValue("var(--control)"), "strokeDash": alt.StrokeDashValue(CONTROL["strokeDash"])}
        return grey, lambda opacity=1.0: alt.OpacityValue(opacity), 1.6, 26
    color = {"color": alt.ColorValue(pool.series.color)}
    return color | (way.look or {}), partial(lit, of=pool.series), 2, 30


def _named(way: Way, pool: PrunableHeads, single: bool) -> tuple[str, str, str]:
    if way.control:
        return ("●" if single else way.mark, way.name, "var(--soft)")
    return (way.mark, way.name, pool.series.color)


def _replicates(gaps: Sequence[Samples], seeds: list, sign: int) -> dict[object, np.ndarray]:
    """Of each seed's mean, over sentences."""
    found = {}
    for seed in seeds:
        drawn = [gap.replicates[seed] for gap in gaps if seed in gap.replicates]
        if len(drawn) == len(gaps):
            found[seed] = sign * sum(drawn) / len(drawn)
    return found


def _whiskers(
    rows: pd.DataFrame, at: dict[str, Any], look: dict[str, Any], aside: int, size: int, light: Any, tooltip: list
) -> list[Any]:
    """A single point with its interval, so many pixels aside."""
    own = {"color": look["color"], "opacity": light()}
    shape = {"shape": look["shape"]} if "shape" in look else {}
    known = alt.Chart(rows.dropna(subset=["low", "high"])).mark_rule(strokeWidth=1.5, xOffset=aside)
    marks = alt.Chart(rows).mark_point(size=size, xOffset=aside, **point_style(rows))
    return [
        known.encode(x=at["x"], y=with_field(at["y"], "low"), y2=alt.Y2("high:Q"), **own),
        marks.encode(**at, **own, **shape, tooltip=tooltip),
    ]
