"""What heads do: the layer × head map, each layer's heads by relevance, and the loss without some of them."""

from typing import Any

import pandas as pd

from infoflow.heads import ABLATION_TRANSFER, ENCODER_CONTEXT, HEAD_EXAMPLES, HEAD_PRUNING_CURVE

from .._curves import band_words, mean_of_draws
from .._figure import Panel, ReportFigure, Section
from .._in_words import Samples, listed, number, sentence
from .._model_selection import ModelSelection
from .._model_tables import ModelTables
from .._theme import Series
from ..forms._chart import BASELINE, amount, finished, free_scales, scale_note, tips
from ..forms._lines import LineKind, control_lines, level, lines, looks_of, names_above
from ..forms._marks import draw, span
from ._context import context_figure
from ._map import head_map_figure
from ._matter import HEAD_IMPORTANCE, matter_figure
from ._relevance import relevance_figure
from ._statistics import HEAD_TABLES, KINDS

_ORDERS = {
    order.key: order
    for order in (
        LineKind(key="importance", label="least important first", dash=(1, 0), shape="circle", mark="●"),
        LineKind(key="iterative", label="least important, ranked again", dash=(6, 3), shape="diamond", mark="◆"),
        LineKind(key="oracle", label="least costly alone first", dash=(2, 2), shape="square", mark="■"),
    )
}
_KINDS = {"-".join(place): label for place, label in KINDS.items()}
_RANDOM = "random order"
_CHANGE = ("change", "change_low", "change_high")
_ALLOWED = 0.1  # relative change for the worse that the sentence allows


def removed_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """The figure of the loss as heads are removed, for all heads together and for each kind of attention."""
    frame = frame.loc[frame["trained"]]
    if frame.empty:
        return None
    metric = str(frame["metric"].iloc[0])
    frame = frame.loc[frame["metric"] == metric]
    curves = _curves(frame)
    changes = curves.set_index("series")[[*_CHANGE]]
    spans = {key: span(changes.loc[[key]], 0.0) for key in changes.index.unique()}  # one for all kinds of attention
    heights = [high - low for low, high in spans.values()]
    free, every = free_scales(heights), span(changes, 0.0)
    panels = [
        Panel(
            spec=_chart(own, models[series], metric, spans[series] if free else every),
            title=", ".join([models[series].label, *([] if kind == "all" else [_KINDS.get(kind, kind)])]),
        )
        for series, kind, own in _by_panel(curves, models)
    ]
    scale = scale_note(heights, "All panels share one scale." if len(panels) > 1 else "", "model")
    seeds = int(frame["seed"].nunique())
    draws = int(frame.loc[frame["order"] == "random", "draw"].nunique())
    grey = f" Grey, dashed: the mean of {draws} random orders per seed, with its band." if draws else ""
    return ReportFigure(
        id="heads-removed",
        question="How many heads can be removed before quality falls?",
        words=_words(curves, models, metric),
        panels=panels,
        caption=f"{band_words(seeds)}; {int(frame['count'].median()):,} sentences behind each point.{grey} Changes are "
        "paired: each sentence is scored with those heads removed and with all heads. Nothing is trained after "
        f"the removal. {scale}".rstrip(),
        how_to_read=[
            f"Across: the share of heads that is removed. Up: by how much the {metric} changes. A flat start at 0 "
            "means that nothing depends on these heads.",
            "An order whose curve lies below the band of random orders carries information about which heads matter. "
            "“Least costly alone first” ranks heads by the cost of removing each one alone.",
            "It would be surprising if this ranking were much better than the one by importance: a head's cost alone "
            "says little about its cost once others are gone.",
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
        level, change = samples.estimate(), (samples - whole[series, kind]).estimate()
        name = _RANDOM if order == "random" else _ORDERS[order].label if order in _ORDERS else order
        heads = own["heads"].iloc[0] if "heads" in own else None
        values = (level.value, level.low, level.high, level.seeds, change.value, change.low, change.high)
        rows.append((series, kind, order, name, float(removed), heads, *values))
    columns = ["series", "kind", "order", "name", "removed", "heads", "value", "low", "high", "seeds", *_CHANGE]
    return pd.DataFrame(rows, columns=columns).sort_values(["series", "kind", "order", "removed"])


def _whole(own: pd.DataFrame) -> Samples:
    """The samples with the fewest heads removed, which is normally none."""
    ranked = own[own["order"] != "random"] if bool((own["order"] != "random").any()) else own
    return Samples.of(ranked[ranked["removed"] == ranked["removed"].min()])


def _by_panel(curves: pd.DataFrame, models: ModelSelection) -> list[tuple[str, str, pd.DataFrame]]:
    """Curves of all heads of each model, then of each kind of attention if there are several."""
    found = [(str(series), str(kind), own) for (series, kind), own in curves.groupby(["series", "kind"], sort=False)]  # type: ignore[misc]
    order = [one.key for one in models.series]
    kinds = ["all", *_KINDS]
    return sorted(
        found, key=lambda one: (one[1] != "all", order.index(one[0]), kinds.index(one[1]) if one[1] in kinds else 9)
    )


def _words(curves: pd.DataFrame, models: ModelSelection, metric: str) -> str:
    """The models in which most and fewest heads can be removed, with random orders as the control."""
    shares = []
    for one, own in models.each(curves[curves["kind"] == "all"]):
        best = next((order for order in _ORDERS if bool((own["order"] == order).any())), None)
        if best is not None:
            random = (
                f" (in random order {number(_percent(own, 'random', metric), 0)}%)"
                if bool((own["order"] == "random").any())
                else ""
            )
            shares.append((_percent(own, best, metric), f"{one.label}{random}"))
    if not shares:
        return ""
    groups = {share: [name for each, name in shares if each == share] for share in sorted({s for s, _ in shares})[::-1]}
    stated = [f"{number(share, 0)}% in {listed(names)}" for share, names in groups.items()]
    shown = stated if len(stated) <= 3 else [f"most, {stated[0]}", f"fewest, {stated[-1]}"]
    return sentence(
        f"the share of heads that can be removed before the {metric} is {_ALLOWED:.0%} worse: {'; '.join(shown)}"
    )


def _percent(own: pd.DataFrame, order: str, metric: str) -> float:
    """The largest percentage up to which every step stays within the allowed loss."""
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
    at = {"x": amount("x", "percent", "heads removed (%)", [0, 100]), "y": amount("y", "value", title, ends, ticks=6)}
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


HEADS = Section(
    id="heads",
    claims=("context",),
    title="What do attention heads do?",
    lead="A head is one way of looking. Some always look at a neighbour, some pick a single token, some spread "
    "over the whole sentence.",
    names={
        "head-map": "heads/map",
        "head-relevance": "heads/relevance",
        "heads-matter": "heads/importance",
        "heads-removed": "heads/removed",
        "encoder-context": "heads/context",
    },
)


def heads_section(tables: ModelTables) -> Section | None:
    """The section on attention heads, or None if the run measured none."""
    models, frames = tables.models, tables.some(HEAD_TABLES)
    figures = [head_map_figure(frames, models, tables.get(HEAD_EXAMPLES.name)), relevance_figure(frames, models)]
    figures += [matter_figure(frames, tables.get(ABLATION_TRANSFER.name), models)]
    figures += [removed_figure(frame, models) for frame in tables.some([HEAD_PRUNING_CURVE.name]).values()]
    context = tables.some([ENCODER_CONTEXT.name])
    figures += [context_figure(frame, models) for frame in context.values()]
    return HEADS.drawn_with(figures, models, [*frames.values(), *context.values()])
