"""Pruned models compared with models trained from scratch with the same heads, and with models trained further."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import Panel, ReportFigure
from infoflow.report._in_words import Candidate, Estimate, Samples, clear_cases, difference_text, extremes_words
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._chart import BASELINE, CONTROL, amount, finished, lit, tips
from infoflow.report.forms._lines import level, lines, names_above, whiskers
from infoflow.report.forms._marks import Constant, draw, point_style

from ..measures import PRUNING
from ._rows import (
    LEARNED,
    METHOD,
    METRICS,
    RECOVERED,
    RECOVERED_ALL,
    RECOVERED_RANDOM,
    SCRATCH,
    UNPRUNED,
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


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodStyle:
    """Style and name of a pruning method."""

    key: str
    name: str
    mark: str = "●"  # mark before its name
    control: bool = False  # whether it is drawn grey and dashed
    look: dict[str, Any] | None = None  # style of its line and marks, besides the colour


_WAYS = (
    MethodStyle(key=SCRATCH, name="from scratch", mark="– –", control=True),
    MethodStyle(key=LEARNED, name="pruned"),
)
_POINT = ["series", "scope", "seed", "draw", "point"]
_HEIGHT = 220
_ASIDE = 4  # pixels, half the distance between marks of one sweep step
_OTHER = "_other"  # suffix of the control's columns
_SAMPLED = ("value", "replicates")

Level = tuple[float, dict[str, Any], tuple[str, str, str]]
"""A quality level that is drawn as a line: its value, the line's style, and its mark, name and colour."""


def scratch_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per model and set of heads with sweep steps that were also trained from scratch."""
    compared = ComparedMethods.of(frame, models, _WAYS)
    if compared is None:
        return None
    return ReportFigure(
        id="pruning-scratch",
        question="Could a model with so few heads have been trained from the start?",
        words=compared.words("the pruned model's advantage"),
        panels=[compared.panel(pool) for pool in compared.pools],
        caption=compared.caption,
        how_to_read=[
            "In colour: the model pruned by learned gates. Grey and dashed, the control: a model that had exactly "
            "these heads from its first update on, with as many updates as the model had before pruning. Dotted: the "
            "model with all heads.",
            "If the coloured line or point lies higher in BLEU (lower in loss), all heads helped in training, though "
            "few are needed afterwards. It would be surprising if training from scratch were better.",
        ],
        method=METHOD,
        data=compared.curves,
        tables=(PRUNING.name,),
        findings=("heads:V2",),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ComparedMethods:
    """Pruning methods, compared at sweep steps; the control is the first method, the method of interest the last."""

    ways: Sequence[MethodStyle]
    metric: dict[PrunableHeads, str]  # the reported metric of each set of heads
    pairs: pd.DataFrame  # rows of the last method and, in columns that end in `_other`, of the control
    rows: pd.DataFrame  # rows of all methods at these sweep steps
    curves: pd.DataFrame

    @classmethod
    def of(cls, frame: pd.DataFrame, models: ModelSelection, ways: Sequence[MethodStyle]) -> "ComparedMethods | None":
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
        bands = "whiskers" if points == {1} else "bands and whiskers" if 1 in points else "bands"  # one step: whiskers
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
        """Advantage of the last method over `rows`, which hold one number per seed."""
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


_AS_PRUNED = {"strokeDash": Constant([2, 3]), "shape": Constant("square")}


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


def _chart(compared: ComparedMethods, pool: PrunableHeads, levels: Sequence[Level]) -> dict[str, Any]:
    name, unit = METRICS[compared.metric[pool]]
    columns = ["left", "value", "low", "high"]
    own = pool.of(compared.curves)
    own = own.assign(**own[columns].round(3))
    at = {
        "x": heads_left(int(own["size"].iloc[0])),
        "y": amount("y", "value", f"{name}{unit}", _span(pool, compared.curves, levels)),
    }
    tooltip = tips("left:Q|heads left", f"value:Q|{name}|.3f")
    drawn = [own.loc[own["way"] == way.key, [*columns, "seeds"]] for way in compared.ways]
    single = len(drawn[-1]) == 1  # neither line nor band, but points with whiskers, side by side
    layers: list[Any] = []
    for index, (way, rows) in enumerate(zip(compared.ways, drawn, strict=True)):
        look, light, width, size = _drawn_as(way, pool)
        if single:
            aside = _ASIDE * (len(drawn) - 1 - 2 * index)
            layers += _whiskers(rows, at, look, aside, size, light, tooltip)
        else:
            layers += lines(rows, at, look, light=light, band=0.15, width=width, size=size, touch=0, tooltip=tooltip)
    across = [level(float(own["unpruned"].mean()), BASELINE, y=at["y"])]
    across += [level(value, style, y=at["y"]) for value, style, _ in levels]
    middle = len(layers) // 2
    layers[middle:middle] = across
    names = [UNPRUNED_NAME, *(stated for _, _, stated in levels)]
    names += [_named(way, pool, single) for way in compared.ways]
    return finished([*layers, names_above(names)], _HEIGHT)


def _span(pool: PrunableHeads, curves: pd.DataFrame, levels: Sequence[Level]) -> list[float]:
    """The panel's scale of quality, including all levels."""
    low, high = span_of(pool, curves)
    margin = 0.05 * (high - low)
    return [
        min([low, *(value - margin for value, _, _ in levels)]),
        max([high, *(value + margin for value, _, _ in levels)]),
    ]


def _drawn_as(way: MethodStyle, pool: PrunableHeads) -> tuple[dict[str, Any], Any, float, int]:
    if way.control:
        grey = {"color": Constant("var(--control)"), "strokeDash": Constant(CONTROL["strokeDash"])}
        return grey, lambda opacity=1.0: Constant(opacity), 1.6, 26
    color = {"color": Constant(pool.series.color)}
    return color | (way.look or {}), partial(lit, of=pool.series), 2, 30


def _named(way: MethodStyle, pool: PrunableHeads, single: bool) -> tuple[str, str, str]:
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


_RECOVERED_WAYS = (
    MethodStyle(key=RECOVERED_RANDOM, name="random heads, trained further", mark="– –", control=True),
    MethodStyle(key=LEARNED, name="as pruned", mark="■", look=_AS_PRUNED),
    MethodStyle(key=RECOVERED, name="trained further"),
)
_ALL = {**CONTROL, "strokeDash": [8, 3]}
_ALL_NAME = ("— —", "all heads, trained further", "var(--soft)")


def recovered_figure(frame: pd.DataFrame, whole: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per model and set of heads with sweep steps that were trained further.

    Args:
        frame: Curves with `left` and `size`.
        whole: The rows of models with all heads: before pruning, and trained further.
    """
    compared = ComparedMethods.of(frame, models, _RECOVERED_WAYS)
    if compared is None:
        return None
    return ReportFigure(
        id="pruning-recovered",
        question="Do pruned models recover when they are trained further?",
        answer=[_recovered_sentence(compared, pool, whole) for pool in compared.pools],
        words=compared.words("trained further, the advantage of the heads that gates left over random ones"),
        panels=[compared.panel(pool, _levels(compared, pool, whole)) for pool in compared.pools],
        caption=compared.caption,
        how_to_read=[
            "Squares: the model as gates pruned it. Dots: the same model, trained further without gates, at a "
            "learning rate that rises and falls again. Grey and short dashes, the control: as many random heads of "
            "the unpruned model, trained for as many updates as both steps together. Dotted: the unpruned model; long "
            "dashes: the unpruned model, trained further for as long.",
            "From squares to dots: what the rest of the model gains by adapting. From grey to dots: what the choice of "
            "heads is worth; it would be surprising if random ones were better. From dots to long dashes: what the "
            "missing heads cost, since more training helps every model.",
        ],
        method=METHOD,
        data=compared.curves,
        tables=(PRUNING.name,),
        findings=("heads:H2",),
    )


def _levels(compared: ComparedMethods, pool: PrunableHeads, whole: pd.DataFrame) -> list[Level]:
    values = _whole(compared, pool, whole, RECOVERED_ALL)["value"]
    return [(float(values.mean()), _ALL, _ALL_NAME)] if len(values) else []


def _whole(compared: ComparedMethods, pool: PrunableHeads, whole: pd.DataFrame, way: str) -> pd.DataFrame:
    rows = whole.loc[(whole["method"] == way) & (whole["metric"] == compared.metric[pool])]
    return rows.loc[rows["series"] == pool.series.key]


def _recovered_sentence(compared: ComparedMethods, pool: PrunableHeads, whole: pd.DataFrame) -> str:
    """The model's distance from random heads, from the model before further training, and from all heads."""
    unit, num, pairs = unit_of(compared.metric[pool]), compared.num_points(pool), pool.of(compared.pairs)
    left = sorted(set(pairs.groupby("point")["left"].mean().round().astype(int)))
    few = f"{left[0]}" if len(left) == 1 else f"{left[0]} to {left[-1]}"
    advantages = {"as many random heads, trained as long": compared.advantage(pool)}
    names = {UNPRUNED: "the unpruned model", RECOVERED_ALL: "all heads, trained as long"}
    for way, name in names.items():
        rows = _whole(compared, pool, whole, way)
        if len(rows):
            advantages[name] = compared.advantage_over(pool, rows)
    points = f" (means over {num} points)" if num > 1 else ""
    *most, last = [f"{difference_text(gap, 'better', 'worse', unit)} than {name}" for name, gap in advantages.items()]
    return (
        f"{pool.subject}: with {few} of {int(pairs['size'].iloc[0])} left and trained further{points}, the model is "
        f"{', '.join(most)}{' and ' if most else ''}{last}."
    )
