"""Figures of routes: how important each head and feed-forward block is, and on how many routes it lies."""

from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.report._curves import first_seed
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, Section, names_of
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._chart import finished, tips
from infoflow.report.forms._rows import cells, squares

from .measures import ROUTE_IMPORTANCE
from .measures._importance import ALL, DOMAIN, IMPORTANCE, LABEL, ROUTE
from .measures._route import CROSS, FEED_FORWARD, HEAD, RESIDUAL

_METHOD = Method(
    id="route-importance",
    title="Information-flow routes",
    text="""
    A state is a sum of parts: the preceding state, and what each head brings from each token, or what the feed-forward
    block adds. The importance of a part is how much closer it brings the zero vector to the state, in L1 distance, as a
    share of the sum over all parts (Ferrando and Voita 2024). A route starts at the last state of a prediction and
    follows all edges whose importance reaches a threshold, down to the tokens. A part lies on the route if the route
    has one of its edges, at any token.
    """,
)
_SHORT = {FEED_FORWARD: "FFN", RESIDUAL: "res."}
_SHORTER = {FEED_FORWARD: "F", RESIDUAL: "r"}
_MANY = 16  # from this many columns on, squares have no numbers and only every fourth head has a label
_TITLES = {IMPORTANCE: "importance", ROUTE: "share of routes"}
_GENERIC = 0.5  # a generic head lies on more than this share of routes
_RARE = 0.05
_ROW = 20


def _routes(frame: pd.DataFrame, tables: ModelTables) -> Drawn:
    panels, answer = [], []
    for series in tables.models.present(frame):
        own = first_seed(frame[(frame["series"] == series.key) & frame["trained"]])
        every = own[own["annotation"] == ALL]
        for stack, of_stack in every.groupby("stack", sort=False):
            name = f"{series.label}, {stack}" if len(set(every["stack"])) > 1 else series.label
            crossing = of_stack["sublayer"] == CROSS
            for own_name, rows in ((name, of_stack[~crossing]), (f"{name}, cross-attention", of_stack[crossing])):
                panels += [
                    Panel(spec=_chart(rows[rows["measure"] == measure], title), title=f"{own_name}, {title}")
                    for measure, title in (_TITLES if len(rows) else {}).items()
                ]
        answer += [_heads(series, every), _feed_forward(series, every), _by_tag(own), _by_domain(own)]
    shown = frame[frame["annotation"] == ALL]
    threshold, count = float(frame["threshold"].iloc[0]), int(shown["count"].median())
    return Drawn(
        data=frame.drop(columns=["replicates"]),
        panels=panels,
        answer=[text for text in answer if text],
        caption=f"{count:,} predictions; edges of routes have an importance of at least {threshold:g}.",
    )


def _chart(own: pd.DataFrame, title: str) -> dict[str, Any]:
    kept = own.query("part != @RESIDUAL or sublayer != @FEED_FORWARD")  # the omitted residual has the rest of 100%
    many = int(kept["head"].max()) + 2 >= _MANY
    short = _SHORTER if many else _SHORT
    names = [str(head) if part == HEAD else short[part] for part, head in zip(kept["part"], kept["head"], strict=True)]
    rows = kept[["layer", "value", "low", "high", "baseline"]].round(4).assign(column=names)
    rows["text"] = [f"{100 * value:.0f}" for value in rows["value"]]
    columns, layers = list(dict.fromkeys(rows["column"])), sorted(rows["layer"].unique(), reverse=True)
    shown = {"values": [one for one in columns if not one.isdecimal() or int(one) % 4 == 0]} if many else {}
    label = "head, r: residual, F: feed-forward (%)" if many else "head, residual, feed-forward (%)"
    x, y = cells("x", "column", label, columns, **shown), cells("y", "layer", "layer", layers)
    numbers = (f"value:Q|{title}|.1%", "low:Q|from|.1%", "high:Q|to|.1%", "baseline:Q|control|.1%")
    look = {"tooltip": tips("layer:O|layer", "column:N|part", *numbers), "size": 9, "text": None if many else "text:N"}
    return finished(squares(rows, x, y, "value", exponent=0.5, **look), max(_ROW * len(layers), 60))


def _heads(series: Series, every: pd.DataFrame) -> str:
    heads = every[every["part"] == HEAD]
    best = heads.loc[heads["value"].where(heads["measure"] == IMPORTANCE).idxmax()]
    routes = heads[heads["measure"] == ROUTE]
    common = int((routes["low"] > _GENERIC).sum())
    return (
        f"The most important head of {series.label} is head {int(best['head'])} of layer {int(best['layer'])}: "
        f"{best['value']:.1%} of a state on average ({best['low']:.1%} to {best['high']:.1%}). {common} of "
        f"{len(routes)} heads lie on more than half of the routes, and {int((routes['high'] < _RARE).sum())} on fewer "
        f"than {_RARE:.0%}."
    )


def _feed_forward(series: Series, every: pd.DataFrame) -> str:
    blocks = every[(every["part"] == FEED_FORWARD) & (every["measure"] == IMPORTANCE)]
    most, least = blocks.loc[blocks["value"].idxmax()], blocks.loc[blocks["value"].idxmin()]
    return (
        f"Its feed-forward blocks make up {most['value']:.0%} of a state in layer {int(most['layer'])}, the most, and "
        f"{least['value']:.1%} in layer {int(least['layer'])}, the least."
    )


def _by_tag(own: pd.DataFrame) -> str:
    tagged = own[~own["annotation"].isin([ALL, LABEL]) & (own["part"] == HEAD) & (own["measure"] == ROUTE)]
    if tagged.empty:
        return ""
    best = tagged.loc[(tagged["low"] - tagged["baseline"]).idxmax()]
    if best["low"] <= best["baseline"]:
        return f"No head lies on more routes of one {best['annotation']} than of all predictions."
    return (
        f"The most selective is head {int(best['head'])} of layer {int(best['layer'])}: it lies on "
        f"{best['value']:.0%} ({best['low']:.0%} to {best['high']:.0%}) of the routes of {best['annotation']} "
        f"{best['tag']}, and on {best['baseline']:.0%} of all routes."
    )


def _by_domain(own: pd.DataFrame) -> str:
    """How many heads lie on most routes of every label, and how many are specific to one label."""
    heads = own[(own["annotation"] == LABEL) & (own["part"] == HEAD)]
    if heads.empty:
        return ""
    place = ["stack", "layer", "sublayer", "head"]
    generic = (heads[heads["measure"] == ROUTE].groupby(place)["low"].min() > _GENERIC).sum()
    text = f"{generic} heads lie on more than half of the routes of every {LABEL}."
    for tag, rows in heads[heads["measure"] == DOMAIN].groupby("tag", sort=False):
        specific, best = rows[rows["low"] > 0], rows.loc[rows["value"].idxmax()]
        text += (
            f" {len(specific)} of {len(rows)} lie on more routes of {tag} than of all other sentences; head "
            f"{int(best['head'])} of layer {int(best['layer'])} has the largest difference, {100 * best['value']:.0f} "
            f"points ({100 * best['low']:.0f} to {100 * best['high']:.0f})."
        )
    return text


ROUTES = DeclaredFigure(
    name="routes/importance",
    id="route-importance",
    question="Which heads and feed-forward blocks does a prediction need?",
    how_to_read=(
        "Each square is a head, the residual connection of an attention (res.), or a feed-forward block (FFN). "
        "Heads and residual add up to 100% of the state after an attention; an FFN's share is of the state after it. "
        "If all parts were equal, each square would have the value of its control.",
        "A head on most routes is generic. A head on the routes of only some words is specialised: compare tags, or "
        "sentences of two domains if each domain has a label.",
    ),
    method=_METHOD,
    tables=(ROUTE_IMPORTANCE.name,),
    draw=_routes,
    findings=("routes:R1", "routes:R2", "routes:R3"),
)
_SECTION = Section(
    id="routes",
    title="Through which parts does information flow?",
    lead="The route of a prediction leads from its last state down to the tokens, through the parts that matter.",
    names=names_of([ROUTES]),
)


def routes_section(tables: ModelTables) -> Section | None:
    """The section, or None if no model's routes were measured."""
    if ROUTE_IMPORTANCE.name not in tables:
        return None
    frame = tables[ROUTE_IMPORTANCE.name]
    figure = ROUTES.of(frame, tables)
    return None if figure is None else replace(_SECTION, figures=[figure], keys=tables.models.present(frame))


SECTIONS = ((114, _SECTION, routes_section),)
