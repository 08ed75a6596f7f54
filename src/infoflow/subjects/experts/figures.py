"""Figures of a mixture of experts: how evenly the experts are used, and which words go to which experts."""

from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.report._curves import first_seed
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, Section, names_of
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._chart import finished, tips
from infoflow.report.forms._rows import cells, signed_squares

from .measures import EXPERT_ROUTING
from .measures._routing import ALL

_METHOD = Method(
    id="expert-routing",
    title="Routing",
    text="""
    A router is a module inside a block that returns the chosen experts of each token. The share of an expert is the
    number of tokens that it gets, divided by all tokens (or by those with the tag). If each token goes to
    k experts, the shares of a layer add up to k. Special tokens do not count.
    """,
)
_ROW = 20


def _routing(frame: pd.DataFrame, tables: ModelTables) -> Drawn:
    frame = frame.assign(ratio=frame["value"] / frame["baseline"])
    panels, answer = [], []
    for series in tables.models.present(frame):
        own = first_seed(frame[(frame["series"] == series.key) & frame["trained"]])
        every, tagged = own[own["annotation"] == ALL], own[own["annotation"] != ALL]
        panels.append(Panel(spec=_chart(every, "layer", "layer"), title=f"{series.label}, all tokens"))
        answer.append(_evenness(series, every))
        if len(tagged):
            best = tagged.loc[(tagged["low"] / tagged["baseline"]).idxmax()]
            shown = tagged[(tagged["layer"] == best["layer"]) & (tagged["stack"] == best["stack"])]
            title = f"{series.label}, layer {int(best['layer'])}, by {best['annotation']}"
            shown = shown[shown["annotation"] == best["annotation"]]
            panels.append(Panel(spec=_chart(shown, "tag", str(best["annotation"])), title=title))
            answer.append(_strongest(series, best))
    count = int(frame.loc[frame["annotation"] == ALL, "count"].median())
    return Drawn(
        data=frame.drop(columns=["replicates", "ratio"]),
        panels=panels,
        answer=answer,
        caption=f"{count:,} tokens. Blue: more than the control, darkest at 3 times; orange: less.",
    )


def _chart(own: pd.DataFrame, field: str, title: str) -> dict[str, Any]:
    order = sorted(own[field].unique(), reverse=field == "layer")
    place = {"x": cells("x", "expert", "expert"), "y": cells("y", field, title, order)}
    rows = own[[field, "expert", "ratio", "value", "baseline"]].round(4)
    tooltip = tips(f"{field}:N|{title}", "expert:O|expert", "value:Q|share|.3f", "baseline:Q|control|.3f")
    marks = signed_squares(rows, field="ratio", ends=(0.0, 3.0), middle=1.0, text=None, tooltip=tooltip, **place)
    return finished(marks, max(_ROW * len(order), 60))


def _evenness(series: Series, every: pd.DataFrame) -> str:
    most, least = every.loc[every["ratio"].idxmax()], every.loc[every["ratio"].idxmin()]
    return (
        f"The most used expert of {series.label} (expert {int(most['expert'])} of layer {int(most['layer'])}) gets "
        f"{most['ratio']:.1f} times its equal share, the least used one (expert {int(least['expert'])} of layer "
        f"{int(least['layer'])}) {least['ratio']:.2f} times."
    )


def _strongest(series: Series, best: pd.Series) -> str:
    share = f"{best['value']:.0%} ({best['low']:.0%} to {best['high']:.0%})"
    return (
        f"The expert most selective for a tag is expert {int(best['expert'])} of layer {int(best['layer'])}: it gets "
        f"{share} of the tokens with {best['annotation']} {best['tag']}, but {best['baseline']:.0%} of all tokens."
    )


ROUTING = DeclaredFigure(
    name="experts/routing",
    id="expert-routing",
    question="Which experts are used, and for which words?",
    how_to_read=(
        "Each square is an expert. Its colour says how its share of tokens compares with the control: equal use of all "
        "experts or, for a tag, the expert's share of all tokens. If every expert took its equal share of every kind "
        "of token, all squares would be pale.",
    ),
    method=_METHOD,
    tables=(EXPERT_ROUTING.name,),
    draw=_routing,
)
_SECTION = Section(
    id="experts",
    title="Which expert reads which words?",
    lead="A mixture of experts sends each token to a few of its feed-forward networks.",
    names=names_of([ROUTING]),
)


def experts_section(tables: ModelTables) -> Section | None:
    """The section, or None if no model's routing was measured."""
    if EXPERT_ROUTING.name not in tables:
        return None
    frame = tables[EXPERT_ROUTING.name]
    figure = ROUTING.of(frame, tables)
    return None if figure is None else replace(_SECTION, figures=[figure], keys=tables.models.present(frame))


SECTIONS = ((115, _SECTION, experts_section),)
