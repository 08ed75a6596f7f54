"""Ways of pruning beside each other at the same points of a sweep: how far apart they are, and all in one panel."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from infoflow.foundation import interval

from .._figure import Panel
from .._in_words import Candidate, clear_cases, extremes_words
from .._samples import Estimate, Samples
from .._shown_models import ShownModels
from ..forms._chart import CONTROL, amount, finished, lit, tips, with_field
from ..forms._hollow import point_style
from ..forms._lines import level, lines
from ..forms._names import names_above
from ._charts import UNPRUNED, UNPRUNED_NAME, heads_left, span_of
from ._rows import METRICS, PrunableHeads, metrics_of, pools_of, quality_curves, several, signature

_POINT = ["series", "scope", "seed", "draw", "point"]
_HEIGHT = 220
_ASIDE = 4  # pixels, half of those between marks of one point
_OTHER = "_other"  # behind the control's columns
_SAMPLED = ("value", "replicates")

Level = tuple[float, dict[str, Any], tuple[str, str, str]]
"""A quality that a panel has a line at, its style, and its mark, name and colour."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """How a way of pruning is drawn and called."""

    key: str
    name: str
    mark: str = "●"  # before its name
    control: bool = False  # grey and dashed
    look: dict[str, Any] | None = None  # of its line and marks, beside the colour


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WaysBeside:
    """Ways of pruning, the control first and the one that is asked about last, at the points of each set of heads."""

    ways: Sequence[Way]
    metric: dict[PrunableHeads, str]  # in which each set of heads is told
    pairs: pd.DataFrame  # of the last way and, in columns that end in `_other`, the control
    rows: pd.DataFrame  # of all ways at these points
    curves: pd.DataFrame

    @classmethod
    def of(cls, frame: pd.DataFrame, models: ShownModels, ways: Sequence[Way]) -> "WaysBeside | None":
        """At the points where in every seed some heads went; None where no point has both the way and its control."""
        pairs = _pairs(frame, ways[-1].key, ways[0].key)
        if pairs.empty:
            return None
        pools = pools_of(pairs, models)
        metric = {pool: metrics_of(pool.of(pairs))[0] for pool in pools}
        pairs = pd.concat([pool.of(pairs).loc[lambda own, at=pool: own["metric"] == metric[at]] for pool in pools])
        keys = [*_POINT, "metric"]
        rows = frame.loc[frame["way"].isin([way.key for way in ways])]
        rows = rows.loc[pd.MultiIndex.from_frame(rows[keys]).isin(pd.MultiIndex.from_frame(pairs[keys]))]
        return cls(ways=ways, metric=metric, pairs=pairs, rows=rows, curves=quality_curves(rows))

    @property
    def pools(self) -> list[PrunableHeads]:
        return list(self.metric)

    @property
    def caption(self) -> str:
        points = set(self.pairs.groupby(["series", "scope"])["point"].nunique())
        bands = "whiskers" if points == {1} else "bands and whiskers" if 1 in points else "bands"  # a single point's
        count = int(self.rows["count"].median())
        return f"{several(self.rows, bands=bands)}; {count:,} sentences behind each point.{signature(self.rows)}"

    def num_points(self, pool: PrunableHeads) -> int:
        return int(pool.of(self.pairs)["point"].nunique())

    def advantage(self, pool: PrunableHeads) -> Estimate:
        """Over the control: mean difference over points, paired by seed and sentence; above 0 the way is better."""
        return self._mean(
            [
                Samples.of(own) - Samples.of(own.assign(**{name: own[f"{name}{_OTHER}"] for name in _SAMPLED}))
                for _, own in pool.of(self.pairs).groupby("point")
            ],
            pool,
        )

    def advantage_over(self, pool: PrunableHeads, rows: pd.DataFrame) -> Estimate:
        """The same over one number for each seed."""
        return self._mean([Samples.of(own) - Samples.of(rows) for _, own in pool.of(self.pairs).groupby("point")], pool)

    def words(self, what: str) -> str:
        """How large the advantage over the control is, in the first metric."""
        first = next(name for name in METRICS if name in self.metric.values())
        found = [
            Candidate(f"for {pool.heads} of {pool.series.label}", self.advantage(pool))
            for pool, metric in self.metric.items()
            if metric == first
        ]
        return extremes_words(what, found, unit_of(first), end=clear_cases(found))

    def panel(self, pool: PrunableHeads, levels: Sequence[Level] = ()) -> Panel:
        """The ways, the last on top, the unpruned model, and more levels."""
        return Panel(spec=_chart(self, pool, levels), title=pool.title)

    def _mean(self, gaps: Sequence[Samples], pool: PrunableHeads) -> Estimate:
        sign = 1 if self.metric[pool] == "bleu" else -1
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


def _pairs(frame: pd.DataFrame, way: str, control: str) -> pd.DataFrame:
    frame = frame.loc[frame["metric"].isin(METRICS) & (frame["left"] < frame["size"])]
    own, other = (frame.loc[frame["way"] == one] for one in (way, control))
    pairs = own.merge(other, on=[*_POINT, "metric"], suffixes=("", _OTHER))
    seeds = pairs.groupby(["series", "scope", "metric"])["seed"].transform("nunique")
    there = pairs.groupby(["series", "scope", "metric", "point"])["seed"].transform("nunique")
    return pairs.loc[there == seeds]


def _chart(beside: WaysBeside, pool: PrunableHeads, levels: Sequence[Level]) -> dict[str, Any]:
    name, unit = METRICS[beside.metric[pool]]
    columns = ["left", "value", "low", "high"]
    own = pool.of(beside.curves)
    own = own.assign(**own[columns].round(3))
    at = {
        "x": heads_left(int(own["size"].iloc[0])),
        "y": alt.Y(**amount("value", f"{name}{unit}", _span(pool, beside.curves, levels))),
    }
    tooltip = tips("left:Q|heads left", f"value:Q|{name}|.3f")
    drawn = [own.loc[own["way"] == way.key, [*columns, "seeds"]] for way in beside.ways]
    single = len(drawn[-1]) == 1  # no line and no band, but points with whiskers, side by side
    layers: list[Any] = []
    for place, (way, rows) in enumerate(zip(beside.ways, drawn, strict=True)):
        look, light, width, size = _drawn_as(way, pool)
        if single:
            aside = _ASIDE * (len(drawn) - 1 - 2 * place)
            layers += _whiskers(rows, at, look, aside, size, light, tooltip)
        else:
            layers += lines(rows, at, look, light=light, band=0.15, width=width, size=size, touch=0, tooltip=tooltip)
    across = [level(float(own["unpruned"].mean()), UNPRUNED, y=at["y"])]
    across += [level(value, style, y=at["y"]) for value, style, _ in levels]
    middle = len(layers) // 2
    layers[middle:middle] = across
    names = [UNPRUNED_NAME, *(told for _, _, told in levels)]
    names += [_named(way, pool, single) for way in beside.ways]
    return finished([*layers, names_above(names)], _HEIGHT)


def _span(pool: PrunableHeads, curves: pd.DataFrame, levels: Sequence[Level]) -> list[float]:
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
