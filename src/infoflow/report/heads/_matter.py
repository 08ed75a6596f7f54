"""Which heads matter: whether importance, relevance and ablation agree, and how many heads can be removed."""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from infoflow.heads import ABLATION_TRANSFER, HEAD_ABLATION, HEAD_RELEVANCE
from infoflow.heads import HEAD_IMPORTANCE as HEAD_IMPORTANCE_TABLE

from .._curves import has_untrained
from .._figure import Method, Panel, ReportFigure
from .._in_words import Candidate, Estimate, Samples, both_extremes, estimate_text, extreme, listed, number, sentence
from .._model_selection import ModelSelection
from .._theme import Series
from ..forms._chart import amount, by_key, color_of, finished, tips
from ..forms._lines import level, points
from ._statistics import KEYS, Statistic, head_name, head_statistics, kind_label

HEAD_IMPORTANCE = Method(
    id="head-importance",
    title="Which heads matter",
    text="""
    Importance: the expected size of ∂<i>L</i>/∂<i>ξ</i><sub>h</sub> for a gate <i>ξ</i> = 1 on the head's output, per
    sentence, then averaged. Removal: the change of the loss on the same sentences when the head's output is replaced,
    with <i>p</i> from random sign flips of block differences, corrected for the number of heads. Curves rank heads
    on some sentences and score others; nothing is trained in between. After Michel, Levy and Neubig (2019). Relevance:
    the head's share, at the input of the output projection, of what its layer contributes to the predicted token's
    logit, after Voita et al. (2019).
    """,
)

_CROWDED = 0.12  # share of the largest size: a linear scale would clump heads together if half of them are below it
_LEAST = 0.003  # share of the largest size: anything smaller is negligible, and lies next to 0
_KIND_SHAPES = {
    "encoder self-attention": "circle",
    "decoder self-attention": "square",
    "cross-attention": "triangle-up",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pair:
    x: Statistic
    y: Statistic
    rows: pd.DataFrame

    def correlation(self, series: str) -> Samples:
        own = self.rows[(self.rows["series"] == series) & self.rows["trained"]]
        return rank_correlation(own, "x", "y")


def rank_correlation(heads: pd.DataFrame, one: str, other: str) -> Samples:
    """Spearman's rank correlation of two columns over the heads of each seed."""
    from scipy.stats import spearmanr  # slow to import

    values = {
        seed: spearmanr(own[one], own[other]).statistic
        for seed, own in heads.groupby("seed")
        if min(len(set(own[one])), len(set(own[other]))) > 1  # otherwise there is no order
    }
    return Samples.bare({seed: float(value) for seed, value in values.items() if value == value})


def matter_figure(
    frames: dict[str, pd.DataFrame], transfer: pd.DataFrame | None, models: ModelSelection
) -> ReportFigure | None:
    """Importance, relevance and single ablations of the same heads; needs at least two of the three.

    `transfer`: whether ablations have the same effects on sentences of another domain.
    """
    rows, statistics = head_statistics(frames)
    pairs = _pairs(rows, statistics)
    if not pairs:
        return None
    main = pairs[0]
    series = models.present(main.rows[main.rows["trained"]])
    tables = tuple(
        name for name in (HEAD_IMPORTANCE_TABLE.name, HEAD_RELEVANCE.name, HEAD_ABLATION.name) if name in frames
    )
    return ReportFigure(
        id="heads-matter",
        question="Do importance, relevance and removal single out the same heads?",
        answer=[
            *(_agreement(pair, series) for pair in pairs[1:2]),
            *_significant(frames, models),
            *_elsewhere(transfer, models),
        ],
        words=_words(main, series, rows[(rows["statistic"] == main.y.id) & rows["trained"]]),
        panels=[Panel(spec=_scatter(main, one), title=one.label) for one in series],
        caption=_scatter_caption(main),
        how_to_read=[
            f"Each point is a head. Across: its {main.x.label}, {main.x.explanation}. Up: {main.y.label}, "
            f"{main.y.explanation}.",
            "Whiskers are 95% intervals over sentences; a short one may lie behind its point. The dashed line is "
            + ("no change." if main.y.signed else "the control."),
            "If the quick measure (across) could replace the costly one (up), points would rise from left to right; a "
            "rank correlation of 1 means the same order, 0 no relation. The head map can show each of these measures "
            "for all heads.",
        ],
        method=HEAD_IMPORTANCE,
        data=main.rows.drop(columns=["model"], errors="ignore"),
        tables=tables if transfer is None else (*tables, ABLATION_TRANSFER.name),
        findings=("heads:M1", "heads:M5", "heads:V6"),
    )


def _pairs(rows: pd.DataFrame, statistics: list[Statistic]) -> list[_Pair]:
    """The available pairs of importance–ablation, relevance–ablation and importance–relevance."""
    found = {one.id.partition("-")[0]: one for one in reversed(statistics) if one.group == "does it matter"}
    pairs = []
    for across, up in (("importance", "ablation"), ("relevance", "ablation"), ("importance", "relevance")):
        if across in found and up in found:
            x, y = (named_by(rows, found[name], axis) for name, axis in ((across, "x"), (up, "y")))
            joined = x.merge(y, on=KEYS).dropna(subset=["x", "y"])
            if len(joined[joined["trained"]]):
                pairs.append(_Pair(x=found[across], y=found[up], rows=joined))
    return pairs


def named_by(rows: pd.DataFrame, statistic: Statistic, name: str) -> pd.DataFrame:
    """The statistic of each head as the column `name`, with `name`_low, `name`_high and `name`_control."""
    own = rows[rows["statistic"] == statistic.id]
    names = {"value": name, "low": f"{name}_low", "high": f"{name}_high", "baseline": f"{name}_control"}
    return own[[*KEYS, *names]].rename(columns=names)


def _words(pair: _Pair, series: list[Series], second: pd.DataFrame) -> str:
    """How well the first measure predicts the second, and which head has the largest second one."""
    stated = both_extremes([Candidate(f"in {one.label}", pair.correlation(one.key).estimate()) for one in series])
    if not stated:
        return ""
    labels = {one.key: one.label for one in series}
    heads = [
        Candidate.held_out(head_name(row, labels[row["series"]], of_seed=True), Samples.of_row(row))
        for row in second.to_dict("records")
        if row["series"] in labels
    ]
    top = extreme(heads)
    most = ""
    if top:
        others = f", not clearly larger than that of {len(top.alike):,} others" if top.alike else ""
        size = f"{estimate_text(top.candidate.estimate, pair.y.unit)}{others}"
        most = f"; the largest {pair.y.label} is that of {top.candidate.name}, {size}"
    return sentence(f"the rank correlation of {pair.x.label} and {pair.y.label} is {stated}{most}")


def _agreement(pair: _Pair, series: list[Series]) -> str:
    found = {one.label: pair.correlation(one.key).estimate() for one in series}
    parts = [f"{correlation_text(estimate)} in {label}" for label, estimate in found.items() if estimate.seeds]
    return f"Rank correlation of {pair.x.label} and {pair.y.label}: {listed(parts) or 'none can be stated'}."


def correlation_text(estimate: Estimate) -> str:
    return estimate_text(estimate) if estimate.has_interval else number(estimate.value, 2)


def _significant(frames: dict[str, pd.DataFrame], models: ModelSelection) -> list[str]:
    """How many heads change the loss when ablated alone, corrected for multiple tests."""
    frame = frames.get(HEAD_ABLATION.name)
    if frame is None or "p_corrected" not in frame:
        return []
    metric = str(frame["metric"].iloc[0])
    own = frame[frame["trained"] & (frame["metric"] == metric)]
    own = own[own["removed"] == "head"] if "removed" in own else own
    parts = []
    for one, heads in models.each(own):
        sure = heads[heads["p_corrected"] < 0.05]
        worse = int((sure["value"] > 0).sum() if metric == "loss" else (sure["value"] < 0).sum())
        losses = f"{worse} of them " if worse < len(sure) else "all of them " if worse > 1 else ""
        parts.append(f"{len(sure)} of {len(heads)} in {one.label}" + (f" ({losses}for the worse)" if len(sure) else ""))
    return [
        f"Heads whose single removal changes the {metric} significantly, corrected for the number of heads: "
        f"{listed(parts)}."
    ]


def _elsewhere(transfer: pd.DataFrame | None, models: ModelSelection) -> list[str]:
    """Whether the heads that matter on these sentences also matter on sentences of another domain."""
    if transfer is None:
        return []
    own = transfer[transfer["trained"] & (transfer["kind"] == "all")].dropna(subset="value")
    parts = []
    for one, rows in models.each(own):
        limit = number(float(rows["baseline"].mean()), 2)
        parts.append(f"{estimate_text(Samples.of(rows).estimate())} in {one.label} (shuffled heads: {limit})")
    words = "Correlation with the effects of removal on sentences of another domain"
    return [f"{words}: {listed(parts)}."] if parts else []


def _scatter_caption(pair: _Pair) -> str:
    trained = pair.rows[pair.rows["trained"]]
    seeds = int(trained["seed"].nunique())
    heads = f"{len(trained):,} heads" + (f" of {seeds} seeds" if seeds > 1 else "")
    over = " Intervals in the text are over seeds." if seeds > 1 else ""
    grey = " Grey crosses: an untrained model." if has_untrained(pair.rows) else ""
    shapes = "circles encoder self-attention, squares decoder self-attention, triangles cross-attention"
    crowded = any(_crowding(pair.rows, axis) for axis in "xy")
    scale = " Axes with unequal steps are linear around 0 and logarithmic further out." if crowded else ""
    return f"{heads}; {shapes}.{over}{grey}{scale}"


def _scatter(pair: _Pair, series: Series) -> dict[str, Any]:
    own = pair.rows[pair.rows["series"] == series.key].round(5)
    own = own.assign(kind=[kind_label(stack, kind) for stack, kind in zip(own["stack"], own["kind"], strict=True)])
    titles = {
        axis: f"{one.label}{f' ({one.unit})' if one.unit else ''}" for axis, one in (("x", pair.x), ("y", pair.y))
    }
    spans = {axis: _span(pair.rows, axis) for axis in "xy"}
    x, y = (
        amount(axis, axis, titles[axis], spans[axis], **_scale(pair.rows, axis, spans[axis])) for axis in ("x", "y")
    )
    kinds = sorted(set(own["kind"]))
    shape = by_key("shape", "kind", kinds, [_KIND_SHAPES.get(kind, "diamond") for kind in kinds])
    trained = own.loc[own["trained"], ["series", "seed", "kind", "layer", "head", "x", "y", "y_low", "y_high"]]
    untrained = own.loc[~own["trained"] & (own["seed"] == own["seed"].min()), ["x", "y"]]
    tooltip = tips("kind:N", "seed:Q", "layer:Q", "head:Q", f"x:Q|{pair.x.label}|.3g", f"y:Q|{pair.y.label}|.3g")
    control = 0.0 if pair.y.signed else float(pair.rows.loc[pair.rows["trained"], "y_control"].mean())
    look, least = {"color": color_of([series]), "shape": shape}, 0.05 * (spans["y"][1] - spans["y"][0])
    ends = {"y": ("y_low", "y_high")}
    behind, *drawn = points(trained, untrained, {"x": x, "y": y}, look, ends=ends, tooltip=tooltip, least=least)
    return finished([behind, level(control, y=y), *drawn], 240)


def _crowding(rows: pd.DataFrame, axis: str) -> float:
    """Median size of heads, at least the negligible size; 0 if a linear scale separates the heads."""
    sizes = rows.loc[rows["trained"], axis].abs()
    middle, largest = float(sizes.median()), float(sizes.max())
    return max(middle, _LEAST * largest) if middle < _CROWDED * largest else 0.0


def _scale(rows: pd.DataFrame, axis: str, span: list[float]) -> dict[str, Any]:
    """A linear scale, or a symlog scale if half of the heads would form one clump."""
    near = _crowding(rows, axis)
    if not near:
        return {"nice": True}
    first = math.floor(math.log10(near))
    sizes = [10.0**power for power in range(first, math.ceil(math.log10(max(map(abs, span)))) + 1)]
    ticks = [value for value in (*(-size for size in reversed(sizes)), 0.0, *sizes) if span[0] <= value <= span[1]]
    return {"type": "symlog", "constant": near, "values": ticks, "format": "~g"}


def _span(rows: pd.DataFrame, axis: str) -> list[float]:
    """Range of the trained models' points; on the y axis, with the drawn intervals."""
    ends = rows.loc[rows["trained"], ["y", "y_low", "y_high"] if axis == "y" else [axis]]
    low, high = float(ends.min().min()), float(ends.max().max())
    margin = 0.06 * (high - low) or 1e-6
    if near := _crowding(rows, axis):
        return [low - near if low >= 0 else 1.5 * low, 1.5 * high]  # for a symlog scale
    return [min(low - margin, 0.0), high + margin]
