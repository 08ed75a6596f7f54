"""Quality against the share of heads removed, beside random orders."""

from typing import Any

import altair as alt
import pandas as pd

from .._figure import Figure, Panel
from .._language import Cast, Series
from .._numbers import listed, number
from .._samples import Samples
from ..forms._hollow import HOLLOW, point_style
from ..forms._layer_chart import CONTROL, finished, lit
from ._matter import HEAD_IMPORTANCE
from ._names import KINDS

_ORDERS = {
    "importance": ("least important first", (1, 0), "circle"),
    "iterative": ("least important, ranked anew", (6, 3), "diamond"),
    "oracle": ("least costly alone first", (2, 2), "square"),
}
_KINDS = {"-".join(place): label for place, label in KINDS.items()}
_RANDOM = "random order"
_ALLOWED = 0.1  # rise of the loss, as a part of it, that the sentence asks about


def removed_figure(frame: pd.DataFrame, cast: Cast) -> Figure | None:
    """The curves of each model, all heads together and each kind of attention alone."""
    frame = frame.loc[frame["trained"]]
    if frame.empty:
        return None
    metric = str(frame["metric"].iloc[0])
    frame = frame.loc[frame["metric"] == metric]
    curves = _curves(frame)
    panels = [
        Panel(spec=_chart(own, cast[series], metric, _span(curves)), title=_title(cast[series], kind))
        for series, kind, own in _by_panel(curves, cast)
    ]
    seeds = int(frame["seed"].nunique())
    several = f"Means over {seeds} seeds" if seeds > 1 else "One seed"
    bands = "95% intervals over seeds and sentences" if seeds > 1 else f"95% intervals over sentences, {HOLLOW}"
    draws = int(frame.loc[frame["order"] == "random", "draw"].nunique())
    grey = f" Grey, dashed: the mean of {draws} random orders per seed, its band their whole range." if draws else ""
    return Figure(
        id="heads-removed",
        question="How many heads can go before quality falls?",
        answer=[_sentence(curves, cast, metric)],
        panels=panels,
        caption=f"{several}; bands: {bands}; {int(frame['count'].median()):,} sentences behind each point.{grey} "
        "Nothing is trained after the removal.",
        how_to_read=[
            f"Across: the share of heads that is removed. Up: the {metric} of what is left. A flat start means heads "
            "that nothing depends on.",
            "Below the random band an order knows something about which heads matter; inside it, it does not. "
            "“Least costly alone first” ranks heads by what the removal of each one alone costs.",
            "It would be surprising if the ranking by single removals were much better than that by importance: a "
            "head's cost alone says little about its cost once others are gone.",
        ],
        method=HEAD_IMPORTANCE,
        data=curves.drop(columns="name"),
        tables=("head_pruning_curve",),
        findings=("heads:M3", "heads:M4", "heads:M6"),
    )


def _curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval of each model, kind and order at each share."""
    rows = []
    groups: Any = frame.groupby(["series", "kind", "order", "removed"], sort=False)
    for (series, kind, order, removed), own in groups:
        if order == "random":
            value, low, high = own["value"].mean(), own["value"].min(), own["value"].max()
            seeds = own["seed"].nunique()
        else:
            estimate = Samples.of(own).estimate()
            value, low, high, seeds = estimate.value, estimate.low, estimate.high, estimate.seeds
        name = _RANDOM if order == "random" else _ORDERS.get(order, (order,))[0]
        heads = own["heads"].iloc[0] if "heads" in own else None
        rows.append(
            {"series": series, "kind": kind, "order": order, "name": name, "removed": float(removed), "heads": heads,
             "value": float(value), "low": float(low), "high": float(high), "seeds": int(seeds)}
        )  # fmt: skip
    return pd.DataFrame(rows).sort_values(["series", "kind", "order", "removed"])


def _by_panel(curves: pd.DataFrame, cast: Cast) -> list[tuple[str, str, pd.DataFrame]]:
    """All heads of each model, then each kind of attention of those that have several."""
    found = [(str(series), str(kind), own) for (series, kind), own in curves.groupby(["series", "kind"], sort=False)]  # type: ignore[misc]
    order = [one.key for one in cast.series]
    kinds = ["all", *_KINDS]
    return sorted(
        found, key=lambda one: (one[1] != "all", order.index(one[0]), kinds.index(one[1]) if one[1] in kinds else 9)
    )


def _title(series: Series, kind: str) -> str:
    return series.label if kind == "all" else f"{series.label}, {_KINDS.get(kind, kind)}"


def _span(curves: pd.DataFrame) -> list[float]:
    drawn = curves[["low", "high", "value"]].stack()
    low, high = float(drawn.min()), float(drawn.max())
    margin = 0.05 * (high - low) or 0.1
    return [low - margin, high + margin]


def _sentence(curves: pd.DataFrame, cast: Cast, metric: str) -> str:
    parts, how = [], []
    for one in cast.present(curves):
        own = curves[(curves["series"] == one.key) & (curves["kind"] == "all")]
        best = next((order for order in _ORDERS if bool((own["order"] == order).any())), None)
        if best is None:
            continue
        how.append(_ORDERS[best][0])
        text = f"{_share(own, best, metric)} in {one.label}"
        if bool((own["order"] == "random").any()):
            text += f" ({_share(own, 'random', metric)} in random order)"
        parts.append(text)
    ways = listed(list(dict.fromkeys(how)))
    return (
        f"With nothing trained again, this share of all heads can go, {ways}, before the {metric} is {_ALLOWED:.0%} "
        f"worse: {listed(parts)}."
    )


def _share(own: pd.DataFrame, order: str, metric: str) -> str:
    """The largest share up to which every point keeps within what is allowed."""
    line = own[own["order"] == order].sort_values("removed")
    start = float(own.loc[own["removed"].idxmin(), "value"])
    worse = (
        line["value"] > start * (1 + _ALLOWED)
        if metric in ("loss", "perplexity")
        else line["value"] < start * (1 - _ALLOWED)
    )
    kept = line.loc[~worse.cummax(), "removed"]
    return f"{number(100 * float(kept.max()), 0) if len(kept) else 0}%"


def _chart(own: pd.DataFrame, series: Series, metric: str, span: list[float]) -> dict[str, Any]:
    own = own.assign(percent=100 * own["removed"]).round(4)
    x = alt.X(
        "percent:Q", title="heads removed (%)", scale=alt.Scale(domain=[0, 100], nice=False), axis=alt.Axis(tickCount=5)
    )
    scale = alt.Scale(domain=span, nice=False, zero=False)
    unit = {"loss": " (nats per token)"}.get(metric, "")
    y = alt.Y("value:Q", title=f"{metric}{unit}", scale=scale, axis=alt.Axis(tickCount=6))
    low = alt.Y("low:Q", title=f"{metric}{unit}", scale=scale)
    known = [order for order in dict.fromkeys(own["order"]) if order != "random"]
    looks = {order: _ORDERS.get(order, (order, (4, 2), "cross")) for order in known}
    dash = alt.StrokeDash(
        "order:N", scale=alt.Scale(domain=known, range=[list(look[1]) for look in looks.values()]), legend=None
    )
    shape = alt.Shape("order:N", scale=alt.Scale(domain=known, range=[look[2] for look in looks.values()]), legend=None)
    ranked = own[own["order"] != "random"].assign(series=series.key)
    chance = own[own["order"] == "random"]
    tooltip = [
        alt.Tooltip("name:N", title="order"),
        alt.Tooltip("percent:Q", title="removed (%)"),
        alt.Tooltip("value:Q", title=metric, format=".3f"),
    ]
    color = alt.ColorValue(series.color)
    layers = [
        alt.Chart(chance).mark_area(color="var(--control)", opacity=0.15).encode(x=x, y=low, y2="high:Q"),
        alt.Chart(chance).mark_line(**CONTROL).encode(x=x, y=y),
        alt.Chart(ranked.dropna(subset=["low", "high"]))
        .mark_area()
        .encode(x=x, y=low, y2="high:Q", detail="order:N", color=color, opacity=lit(0.15)),
        alt.Chart(ranked).mark_line(strokeWidth=2).encode(x=x, y=y, strokeDash=dash, color=color, opacity=lit()),
        alt.Chart(ranked)
        .mark_point(size=28, **point_style(ranked))
        .encode(x=x, y=y, shape=shape, color=color, opacity=lit()),
        alt.Chart(own).mark_point(filled=True, size=200, opacity=0).encode(x=x, y=y, tooltip=tooltip),
        *_names(own, series),
    ]
    return finished(alt.layer(*layers), 240)


def _names(own: pd.DataFrame, series: Series) -> list[alt.Chart]:
    """Marks and names of the orders, at the top left where no line is: quality is lost towards the right."""
    found = [(_RANDOM, "┄", "var(--soft)")] * int((own["order"] == "random").any())
    found += [
        (name, {"circle": "●", "diamond": "◆", "square": "■"}[shape], series.color)
        for order, (name, _, shape) in _ORDERS.items()
        if bool((own["order"] == order).any())
    ]
    return [
        alt.Chart(pd.DataFrame([{"text": f"{mark} {name}"}]))
        .mark_text(align="left", baseline="top", fontSize=11, fontWeight="bold", color=color)
        .encode(x=alt.XValue(6), y=alt.YValue(4 + 15 * row), text="text:N")
        for row, (name, mark, color) in enumerate(found)
    ]
