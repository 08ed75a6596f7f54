"""Pruning methods compared at the same sweep steps: their differences, and all of them in one panel."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import Panel
from infoflow.report._in_words import Candidate, clear_cases, extremes_words
from infoflow.report._samples import Estimate, Samples
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import BASELINE, CONTROL, amount, finished, lit, tips
from infoflow.report.forms._hollow import point_style
from infoflow.report.forms._lines import level, lines, whiskers
from infoflow.report.forms._marks import Constant, draw
from infoflow.report.forms._names import names_above

from ._rows import (
    METRICS,
    UNPRUNED_NAME,
    PrunableHeads,
    heads_left,
    metrics_of,
    pools_of,
    quality_curves,
    several,
    signature,
    span_of,
)

_POINT = ["series", "scope", "seed", "draw", "point"]
_HEIGHT = 220
_ASIDE = 4  # pixels, half the distance between marks of one sweep step
_OTHER = "_other"  # suffix of the control's columns
_SAMPLED = ("value", "replicates")

Level = tuple[float, dict[str, Any], tuple[str, str, str]]
"""A quality level drawn as a line, its style, and its mark, name and colour."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """Style and name of a pruning method."""

    key: str
    name: str
    mark: str = "●"  # before its name
    control: bool = False  # grey and dashed
    look: dict[str, Any] | None = None  # of its line and marks, besides the colour


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WaysBeside:
    """Pruning methods at the sweep steps of each set of heads: the control first, the method of interest last."""

    ways: Sequence[Way]
    metric: dict[PrunableHeads, str]  # the reported metric of each set of heads
    pairs: pd.DataFrame  # of the last method and, in columns that end in `_other`, of the control
    rows: pd.DataFrame  # of all methods at these sweep steps
    curves: pd.DataFrame

    @classmethod
    def of(cls, frame: pd.DataFrame, models: ShownModels, ways: Sequence[Way]) -> "WaysBeside | None":
        """Compare at sweep steps where every seed pruned some heads; None if no step has both method and control."""
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
        bands = "whiskers" if points == {1} else "bands and whiskers" if 1 in points else "bands"  # a single step's
        count = int(self.rows["count"].median())
        return f"{several(self.rows, bands=bands)}; {count:,} sentences behind each point.{signature(self.rows)}"

    def num_points(self, pool: PrunableHeads) -> int:
        return int(pool.of(self.pairs)["point"].nunique())

    def advantage(self, pool: PrunableHeads) -> Estimate:
        """Advantage over the control, averaged over sweep steps, paired by seed and sentence; positive is better."""
        return self._mean(
            [
                Samples.of(own) - Samples.of(own.assign(**{name: own[f"{name}{_OTHER}"] for name in _SAMPLED}))
                for _, own in pool.of(self.pairs).groupby("point")
            ],
            pool,
        )

    def advantage_over(self, pool: PrunableHeads, rows: pd.DataFrame) -> Estimate:
        """The same advantage over one number per seed."""
        return self._mean([Samples.of(own) - Samples.of(rows) for _, own in pool.of(self.pairs).groupby("point")], pool)

    def words(self, what: str) -> str:
        """The size of the advantage over the control, in the first metric."""
        first = next(name for name in METRICS if name in self.metric.values())
        found = [
            Candidate(f"for {pool.heads} of {pool.series.label}", self.advantage(pool))
            for pool, metric in self.metric.items()
            if metric == first
        ]
        return extremes_words(what, found, unit_of(first), end=clear_cases(found))

    def panel(self, pool: PrunableHeads, levels: Sequence[Level] = ()) -> Panel:
        """The methods (the last on top), the unpruned model, and additional levels."""
        return Panel(spec=_chart(self, pool, levels), title=pool.title)

    def _mean(self, gaps: Sequence[Samples], pool: PrunableHeads) -> Estimate:
        sign = 1 if self.metric[pool] == "bleu" else -1
        seeds = sorted(set.intersection(*(set(gap.values) for gap in gaps)))
        values = {seed: sign * sum(gap.values[seed] for gap in gaps) / len(gaps) for seed in seeds}
        return Samples.by_key(values, _replicates(gaps, seeds, sign)).estimate()


def unit_of(metric: str) -> str:
    """Unit of differences."""
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
        "y": amount("y", "value", f"{name}{unit}", _span(pool, beside.curves, levels)),
    }
    tooltip = tips("left:Q|heads left", f"value:Q|{name}|.3f")
    drawn = [own.loc[own["way"] == way.key, [*columns, "seeds"]] for way in beside.ways]
    single = len(drawn[-1]) == 1  # neither line nor band, but points with whiskers, side by side
    layers: list[Any] = []
    for place, (way, rows) in enumerate(zip(beside.ways, drawn, strict=True)):
        look, light, width, size = _drawn_as(way, pool)
        if single:
            aside = _ASIDE * (len(drawn) - 1 - 2 * place)
            layers += _whiskers(rows, at, look, aside, size, light, tooltip)
        else:
            layers += lines(rows, at, look, light=light, band=0.15, width=width, size=size, touch=0, tooltip=tooltip)
    across = [level(float(own["unpruned"].mean()), BASELINE, y=at["y"])]
    across += [level(value, style, y=at["y"]) for value, style, _ in levels]
    middle = len(layers) // 2
    layers[middle:middle] = across
    names = [UNPRUNED_NAME, *(told for _, _, told in levels)]
    names += [_named(way, pool, single) for way in beside.ways]
    return finished([*layers, names_above(names)], _HEIGHT)


def _span(pool: PrunableHeads, curves: pd.DataFrame, levels: Sequence[Level]) -> list[float]:
    """The panel's scale of quality, including all levels."""
    low, high = span_of(pool, curves)
    margin = 0.05 * (high - low)
    return [
        min([low, *(value - margin for value, _, _ in levels)]),
        max([high, *(value + margin for value, _, _ in levels)]),
    ]


def _drawn_as(way: Way, pool: PrunableHeads) -> tuple[dict[str, Any], Any, float, int]:
    """Encodings, opacity, width and size of marks."""
    if way.control:
        grey = {"color": Constant("var(--control)"), "strokeDash": Constant(CONTROL["strokeDash"])}
        return grey, lambda opacity=1.0: Constant(opacity), 1.6, 26
    color = {"color": Constant(pool.series.color)}
    return color | (way.look or {}), partial(lit, of=pool.series), 2, 30


def _named(way: Way, pool: PrunableHeads, single: bool) -> tuple[str, str, str]:
    if way.control:
        return ("●" if single else way.mark, way.name, "var(--soft)")
    return (way.mark, way.name, pool.series.color)


def _replicates(gaps: Sequence[Samples], seeds: list, sign: int) -> dict[object, np.ndarray]:
    """Replicates of each seed's mean, over sentences."""
    found = {}
    for seed in seeds:
        drawn = [gap.replicates[seed] for gap in gaps if seed in gap.replicates]
        if len(drawn) == len(gaps):
            found[seed] = sign * sum(drawn) / len(drawn)
    return found


def _whiskers(
    rows: pd.DataFrame, at: dict[str, Any], look: dict[str, Any], aside: int, size: int, light: Any, tooltip: list
) -> list[Any]:
    """A single point with its interval, shifted sideways by `aside` pixels."""
    own = {"color": look["color"], "opacity": light(), "xOffset": aside}
    shape = {"shape": look["shape"]} if "shape" in look else {}
    ends = whiskers(rows.dropna(subset=["low", "high"]), at, own, {"y": ("low", "high")}, strokeWidth=1.5)
    return [*ends, draw("point", rows, point_style(rows), at, own, shape, size=size, tooltip=tooltip)]
