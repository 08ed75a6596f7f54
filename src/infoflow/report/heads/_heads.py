"""What heads do: the layer × head map, confident heads, and the loss without some of them."""

from typing import Any

import pandas as pd

from infoflow.heads import (
    ABLATION_TRANSFER,
    ENCODER_CONTEXT,
    HEAD_CONFIDENCE,
    HEAD_EXAMPLES,
    HEAD_POSITIONAL,
    HEAD_PRUNING_CURVE,
)

from .._curves import band_words, has_untrained, mean_of_draws
from .._figure import Method, Panel, ReportFigure, Section
from .._in_words import Candidate, Estimate, Samples, estimate_text, extreme, listed, number, plain, sentence
from .._model_tables import ModelTables
from .._shown_models import ShownModels
from .._theme import Series
from ..forms._chart import BASELINE, amount, color_of, finished, free_scales, scale_note, shape_of, tips
from ..forms._lines import SHARE, LineKind, control_lines, level, lines, looks_of, names_above, points
from ..forms._marks import draw, span
from ._context import context_figure
from ._map import head_map_figure
from ._matter import HEAD_IMPORTANCE, matter_figure
from ._statistics import HEAD_TABLES, KINDS

# Loss by the share of ablated heads, on the same sentences, with random orders as the control.


_ORDERS = {
    order.key: order
    for order in (
        LineKind(key="importance", label="least important first", dash=(1, 0), shape="circle", mark="●"),
        LineKind(key="iterative", label="least important, ranked anew", dash=(6, 3), shape="diamond", mark="◆"),
        LineKind(key="oracle", label="least costly alone first", dash=(2, 2), shape="square", mark="■"),
    )
}
_KINDS = {"-".join(place): label for place, label in KINDS.items()}
_RANDOM = "random order"
_CHANGE = ("change", "change_low", "change_high")
_ALLOWED = 0.1  # relative rise of the loss that the sentence allows


def removed_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """The curves of each model, for all heads together and for each kind of attention."""
    frame = frame.loc[frame["trained"]]
    if frame.empty:
        return None
    metric = str(frame["metric"].iloc[0])
    frame = frame.loc[frame["metric"] == metric]
    curves = _curves(frame)
    changes = curves.set_index("series")[[*_CHANGE]]
    spans = {key: span(changes.loc[[key]], 0.0) for key in changes.index.unique()}  # one for all kinds
    heights = [high - low for low, high in spans.values()]
    free, every = free_scales(heights), span(changes, 0.0)
    panels = [
        Panel(
            spec=_chart(own, models[series], metric, spans[series] if free else every),
            title=_title(models[series], kind),
        )
        for series, kind, own in _by_panel(curves, models)
    ]
    scale = scale_note(heights, "All panels share one scale." if len(panels) > 1 else "", "model")
    seeds = int(frame["seed"].nunique())
    draws = int(frame.loc[frame["order"] == "random", "draw"].nunique())
    grey = f" Grey, dashed: the mean of {draws} random orders per seed, with its band." if draws else ""
    return ReportFigure(
        id="heads-removed",
        question="How many heads can go before quality falls?",
        answer=[_sentence(curves, models, metric)],
        words=_words(curves, models, metric),
        panels=panels,
        caption=f"{band_words(seeds)}; {int(frame['count'].median()):,} sentences behind each point.{grey} "
        "Changes are paired: each sentence with heads removed is held against itself with all of them. Nothing is "
        f"trained after the removal. {scale}".rstrip(),
        how_to_read=[
            f"Across: the share of heads that is removed. Up: how much the {metric} changes by that. A flat start at 0 "
            "means heads that nothing depends on.",
            "Below the band of random orders an order knows something about which heads matter. "
            "“Least costly alone first” ranks heads by what the removal of each one alone costs.",
            "It would be surprising if the ranking by single removals were much better than that by importance: a "
            "head's cost alone says little about its cost once others are gone.",
        ],
        method=HEAD_IMPORTANCE,
        data=curves.drop(columns="name"),
        tables=(HEAD_PRUNING_CURVE.name,),
        findings=("heads:M3", "heads:M4", "heads:M6"),
    )


def _curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval of each model, kind and order at each share, and of the change from the whole model."""
    rows = []
    whole = {key: _whole(own) for key, own in frame.groupby(["series", "kind"], sort=False)}
    groups: Any = frame.groupby(["series", "kind", "order", "removed"], sort=False)
    for (series, kind, order, removed), own in groups:
        samples = Samples.of(mean_of_draws(own) if order == "random" else own)
        estimate, paired = samples.estimate(), (samples - whole[series, kind]).estimate()
        value, low, high, seeds = estimate.value, estimate.low, estimate.high, estimate.seeds
        change = paired.value, paired.low, paired.high
        name = _RANDOM if order == "random" else _ORDERS[order].label if order in _ORDERS else order
        heads = own["heads"].iloc[0] if "heads" in own else None
        rows.append(
            {"series": series, "kind": kind, "order": order, "name": name, "removed": float(removed), "heads": heads,
             "value": float(value), "low": float(low), "high": float(high), "seeds": int(seeds),
             **dict(zip(_CHANGE, map(float, change), strict=True))}
        )  # fmt: skip
    return pd.DataFrame(rows).sort_values(["series", "kind", "order", "removed"])


def _whole(own: pd.DataFrame) -> Samples:
    """The samples with the fewest heads removed, normally none."""
    ranked = own[own["order"] != "random"] if bool((own["order"] != "random").any()) else own
    return Samples.of(ranked[ranked["removed"] == ranked["removed"].min()])


def _by_panel(curves: pd.DataFrame, models: ShownModels) -> list[tuple[str, str, pd.DataFrame]]:
    """Curves of all heads of each model, then of each kind of attention if there are several."""
    found = [(str(series), str(kind), own) for (series, kind), own in curves.groupby(["series", "kind"], sort=False)]  # type: ignore[misc]
    order = [one.key for one in models.series]
    kinds = ["all", *_KINDS]
    return sorted(
        found, key=lambda one: (one[1] != "all", order.index(one[0]), kinds.index(one[1]) if one[1] in kinds else 9)
    )


def _title(series: Series, kind: str) -> str:
    return series.label if kind == "all" else f"{series.label}, {_KINDS.get(kind, kind)}"


def _sentence(curves: pd.DataFrame, models: ShownModels, metric: str) -> str:
    parts, how = [], []
    for one in models.present(curves):
        own = curves[(curves["series"] == one.key) & (curves["kind"] == "all")]
        best = next((order for order in _ORDERS if bool((own["order"] == order).any())), None)
        if best is None:
            continue
        how.append(_ORDERS[best].label)
        text = f"{_share(own, best, metric)} in {one.label}"
        if bool((own["order"] == "random").any()):
            text += f" ({_share(own, 'random', metric)} in random order)"
        parts.append(text)
    ways = listed(list(dict.fromkeys(how)))
    return (
        f"With nothing trained again, this share of all heads can go, {ways}, before the {metric} is {_ALLOWED:.0%} "
        f"worse: {listed(parts)}."
    )


def _words(curves: pd.DataFrame, models: ShownModels, metric: str) -> str:
    """The models in which most and fewest heads can be removed, with their random orders as the control."""
    shares = []
    for one in models.present(curves):
        own = curves[(curves["series"] == one.key) & (curves["kind"] == "all")]
        best = next((order for order in _ORDERS if bool((own["order"] == order).any())), None)
        if best is not None:
            random = (
                f" (in random order {_share(own, 'random', metric)})" if bool((own["order"] == "random").any()) else ""
            )
            shares.append((_percent(own, best, metric), f"{one.label}{random}"))
    if not shares:
        return ""
    groups = {share: [name for each, name in shares if each == share] for share in sorted({s for s, _ in shares})[::-1]}
    told = [f"{number(share, 0)}% in {listed(names)}" for share, names in groups.items()]
    shown = told if len(told) <= 3 else [f"most, {told[0]}", f"fewest, {told[-1]}"]
    return sentence(f"of all heads, {'; '.join(shown)} can go before the {metric} is {_ALLOWED:.0%} worse")


def _share(own: pd.DataFrame, order: str, metric: str) -> str:
    return f"{number(_percent(own, order, metric), 0)}%"


def _percent(own: pd.DataFrame, order: str, metric: str) -> float:
    """The largest percentage up to which every sweep step stays within the allowed loss."""
    line = own[own["order"] == order].sort_values("removed")
    start = float(own.loc[own["removed"].idxmin(), "value"])
    worse = (
        line["value"] > start * (1 + _ALLOWED)
        if metric in ("loss", "perplexity")
        else line["value"] < start * (1 - _ALLOWED)
    )
    kept = line.loc[~worse.cummax(), "removed"]
    return 100 * float(kept.max()) if len(kept) else 0.0


def _chart(own: pd.DataFrame, series: Series, metric: str, ends: tuple[float, float]) -> dict[str, Any]:
    own = own.assign(percent=100 * own["removed"]).round(4)
    own = own.assign(
        level=own["value"], **dict(zip(("value", "low", "high"), (own[name] for name in _CHANGE), strict=True))
    )
    own = own.drop(columns=[*_CHANGE])
    title = {"loss": "loss added (nats per token)"}.get(metric, f"change of {metric}")
    at = {
        "x": amount("x", "percent", "heads removed (%)", [0, 100]),
        "y": amount("y", "value", title, ends, ticks=6),
    }
    known = [order for order in dict.fromkeys(own["order"]) if order != "random"]
    orders = [
        _ORDERS.get(order, LineKind(key=order, label=order, dash=(4, 2), shape="cross", mark="✚")) for order in known
    ]
    ranked, chance = own[own["order"] != "random"].assign(series=series.key), own[own["order"] == "random"]
    look = looks_of(orders, "order", series.color)
    tooltip = tips("name:N|order", "percent:Q|removed (%)", f"value:Q|change of {metric}|+.3f", f"level:Q|{metric}|.3f")
    names = [("– –", _RANDOM, "var(--soft)")] * bool(len(chance)) + [(o.mark, o.label, series.color) for o in orders]
    return finished(
        [
            level(0.0, BASELINE, y=at["y"]),
            *control_lines(chance, at, band=0.15, by=""),
            *lines(ranked, at, look, band=0.15, width=2, size=28, touch=0),
            draw("point", own, at, filled=True, size=200, opacity=0, tooltip=tooltip),
            names_above(names),
        ],
        240,
    )


# What heads do: the layer × head map with a choice of statistics, and whether positional heads are confident.


_POSITIONAL_HEADS = Method(
    id="head-positional",
    title="Positional heads",
    text="""
    The share of queries whose strongest key lies at a given offset, among queries that have a key there. A head is
    called positional from 90%. After Voita et al. (2019).
    """,
)

_POINT = 0.03  # width of a point on axes from 0 to 1
_POSITIONAL = 0.90  # Voita et al. 2019: share of queries whose strongest key is at one offset


HEADS = Section(
    id="heads",
    title="What do attention heads do?",
    lead="A head is one way of looking. Some always look at a neighbour, some pick a single token, some spread "
    "over the whole sentence.",
    names={
        "head-map": "heads/map",
        "head-positions": "heads/positions",
        "heads-matter": "heads/importance",
        "heads-removed": "heads/removed",
        "encoder-context": "heads/context",
    },
)


def heads_section(tables: ModelTables) -> Section | None:
    """The section, or None if the run measured no heads."""
    models, frames = tables.models, tables.some(HEAD_TABLES)
    figures = [head_map_figure(frames, models, tables.get(HEAD_EXAMPLES.name))]
    if {HEAD_CONFIDENCE.name, HEAD_POSITIONAL.name} <= set(frames):
        pairs = _positional_frame(models.main(frames[HEAD_CONFIDENCE.name]), models.main(frames[HEAD_POSITIONAL.name]))
        if len(pairs):
            figures.append(_positional_figure(pairs, models))
    figures += [matter_figure(frames, tables.get(ABLATION_TRANSFER.name), models)]
    figures += [removed_figure(frame, models) for frame in tables.some([HEAD_PRUNING_CURVE.name]).values()]
    context = tables.some([ENCODER_CONTEXT.name])
    figures += [context_figure(frame, models) for frame in context.values()]
    return HEADS.told_by(figures, models, [*frames.values(), *context.values()])


def _positional_frame(confidence: pd.DataFrame, positional: pd.DataFrame) -> pd.DataFrame:
    """One row per self-attention head: the larger of its shares at offsets −1 and +1, and its confidence."""
    keys = ["series", "model", "seed", "trained", "stack", "kind", "layer", "head"]
    near = positional[(positional["kind"] == "self") & positional["offset"].isin([-1, 1])]
    best = near.dropna(subset="value").sort_values("value").drop_duplicates(keys, keep="last")
    named = {"value": "share", "low": "share_low", "high": "share_high", "baseline": "share_baseline"}
    best = best[[*keys, "offset", *named]].rename(columns=named)
    columns = [*keys, "value", "low", "high", "baseline", "count"]
    return confidence[columns].merge(best, on=keys).rename(columns={"value": "confidence", "baseline": "uniform"})


def _positional_figure(pairs: pd.DataFrame, models: ShownModels) -> ReportFigure:
    series, seeds = models.present(pairs), int(pairs["seed"].nunique())
    controls = " Grey: the untrained model." if has_untrained(pairs) else ""
    return ReportFigure(
        id="head-positions",
        question="Are the heads that look at a neighbour the confident ones?",
        answer=[
            f"A head is positional if it looks at one neighbour in at least {_POSITIONAL:.0%} of cases: "
            f"{'; '.join(_tally(pairs, s) for s in series)}."
        ],
        words=_positional_words(pairs, series),
        panels=[Panel(spec=_scatter(pairs[pairs["series"] == s.key], s), title=s.label) for s in series],
        caption=f"Each point is a head{f' of one of {seeds} seeds' if seeds > 1 else ''}; whiskers are 95% intervals "
        f"(bootstrap over sentences), left out where a point hides them; {int(pairs['count'].median()):,} queries per "
        f"head.{' Intervals in the text are over seeds.' if seeds > 1 else ''}{controls}",
        how_to_read=[
            "Across: how often a head's strongest key is the token just before it or, whichever is more, just after. "
            "Up: its mean strongest weight (confidence).",
            f"The dashed lines: {_POSITIONAL:.0%} of queries, the usual threshold of a positional head; and the "
            "confidence of a head that spreads its weight evenly.",
            "It would be surprising to find points at the lower right: heads that always pick a neighbour, but barely.",
        ],
        method=_POSITIONAL_HEADS,
        data=pairs.drop(columns="model"),
        tables=(HEAD_CONFIDENCE.name, HEAD_POSITIONAL.name),
        findings=("heads:V8",),
    )


def _positional_words(pairs: pd.DataFrame, series: list[Series]) -> str:
    """The model with the largest share of positional heads, and whether these are its confident heads."""
    trained = pairs[pairs["trained"]]
    shares = []
    for line in series:
        own = trained[trained["series"] == line.key]
        shares += [Candidate(line.label, plain(float((own["share"] >= _POSITIONAL).mean())))] if len(own) else []
    top = extreme(shares)
    if top is None:
        return ""
    if not top.candidate.estimate.value:
        return sentence(f"no head looks at one neighbour in {_POSITIONAL:.0%} of cases")
    key = next(line.key for line in series if line.label == top.candidate.name)
    own = trained[trained["series"] == key]
    positional = own["share"] >= _POSITIONAL
    inside, outside = _mean_confidence(own[positional]), _mean_confidence(own[~positional])
    also = f", as in {listed(list(top.alike))}" if top.alike else ", the largest share" if len(shares) > 1 else ""
    said = f"{int(positional.sum())} of {len(own)} heads of {top.candidate.name} look at one neighbour{also}"
    if not outside.seeds:
        return sentence(said)
    more = "more" if inside.value > outside.value else "not more"
    numbers = f"mean confidence {number(inside.value, 2)} against {number(outside.value, 2)} of its others"
    return sentence(f"{said}; they are {more} confident: {numbers}")


def _tally(pairs: pd.DataFrame, series: Series) -> str:
    own = pairs[(pairs["series"] == series.key) & pairs["trained"]]
    positional = own["share"] >= _POSITIONAL
    count = int(positional.sum())
    if not count:
        return f"none of {len(own)} heads in {series.label}"
    inside, outside = _mean_confidence(own[positional]), _mean_confidence(own[~positional])
    against = f", against {estimate_text(outside)} for the others" if outside.seeds else ""
    return f"{count} of {len(own)} heads in {series.label}, with mean confidence {estimate_text(inside)}{against}"


def _mean_confidence(heads: pd.DataFrame) -> Estimate:
    """Mean over heads within each seed, then over seeds."""
    means = heads.groupby("seed")["confidence"].mean()
    return Samples.bare(dict(means.items())).estimate()


def _scatter(pairs: pd.DataFrame, series: Series) -> dict[str, Any]:
    x = amount("x", "share", "share looking at one neighbour", SHARE)
    y = amount("y", "confidence", "confidence", SHARE)
    ends = {"x": ("share_low", "share_high"), "y": ("low", "high")}
    drawn = ["series", "seed", "layer", "head", "offset", "share", "confidence", *ends["x"], *ends["y"]]
    trained = pairs.loc[pairs["trained"], drawn].round(4)
    untrained = pairs.loc[~pairs["trained"], ["share", "confidence"]].round(3)
    look = {"color": color_of([series]), "shape": shape_of([series])}
    tooltip = tips("seed:Q", "layer:Q", "head:Q", "offset:Q", "share:Q||.3f", "confidence:Q||.3f")
    uniform = float(pairs.loc[pairs["trained"], "uniform"].mean())
    behind, *drawn = points(trained, untrained, {"x": x, "y": y}, look, ends=ends, tooltip=tooltip, least=_POINT)
    return finished([behind, level(_POSITIONAL, x=x), level(uniform, y=y), *drawn], 240)
