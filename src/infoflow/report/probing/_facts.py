"""Which facts can be filled into blanks from each layer: the model's own answers, without a probe."""

import math

import pandas as pd

from .._curves import curves, interval_note
from .._figure import Panel, ReportFigure
from .._numbers import estimate_text, number
from .._shown_models import ShownModels
from ._methods import FACTS
from ._rows import MOST_TASKS, alike_text, any_trained, best_layer, of, sentence_start, share_chart, span

_WAYS = ["lens", "prompts", "ensemble"]


def facts_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel of all relations, and one for each relation that depth matters for; None without a trained model."""
    if not any_trained(frame):
        return None
    way = frame[_WAYS].astype(str).iloc[0].to_dict()  # the first that was asked: the logit lens, prompts as they are
    own = of(frame, **way)
    of_each = of(own, average="relation")
    spread = of_each.groupby(["relation", "layer"])["value"].mean().groupby(level=0).agg(span)
    relations = [str(name) for name in spread.sort_values(ascending=False).index]
    shown = relations[: MOST_TASKS - 1] if len(relations) > 1 else []
    parts = [of(own, average="macro"), *(of(of_each, relation=name) for name in shown)]
    first = f"all {len(relations)} relations" if len(relations) > 1 else _plain(relations[0])
    titles = [f"{name} ({_facts(rows)})" for name, rows in zip([first, *map(_plain, shown)], parts, strict=True)]
    tables = [curves(rows) for rows in parts]
    data = pd.concat([table.assign(relation=name) for name, table in zip(["all", *shown], tables, strict=True)])
    charts = [share_chart(table, models, "facts filled in rightly", "most frequent object") for table in tables]
    return ReportFigure(
        id="facts-filled-in",
        question="Which facts can a model fill in, and from which layer on?",
        answer=_sentences(parts[0], models),
        panels=[Panel.of(chart, title) for chart, title in zip(charts, titles, strict=True)],
        caption=f"{_intervals(data)} {_asked(parts[0], way)}{_further(len(relations) - len(shown) if shown else 0)}",
        how_to_read=[
            "Across: layers, from the embeddings (0) to the model's output. Up: the share of facts whose object is the "
            "likeliest filling of the blank, among the objects of all facts, when it is read off this layer by the "
            "model's own output (logit lens).",
            "The dotted line gives the most frequent object of each relation as the answer to all: what is known "
            "without knowing the fact.",
            "A curve that rises only at the end does not say that lower layers lack the fact: they may hold it in a "
            "form that the output does not read.",
        ],
        method=FACTS,
        data=data,
        tables=("fill_in",),
        payload={"apart": True},
    )


def _intervals(data: pd.DataFrame) -> str:
    return interval_note(data).replace("occurrences", "facts").replace("over sentences", "over facts")


def _further(num: int) -> str:
    return f" {num} further relations differ less between layers: in the table." if num else ""


def _plain(relation: str) -> str:
    return relation.replace("_", " ")


def _facts(rows: pd.DataFrame) -> str:
    return f"{int(rows['count'].max()):,}"


def _asked(rows: pd.DataFrame, way: dict[str, str]) -> str:
    left_out = int(rows["left_out"].max())
    missing = (
        f" {left_out:,} facts were not asked: their object is not one token, or has no prompt." if left_out else ""
    )
    return f"Prompts: {way['prompts']}; {int(rows['vocabulary'].max()):,} objects to choose from.{missing}"


def _sentences(own: pd.DataFrame, models: ShownModels) -> list[str]:
    """Of each model its best layer, beside the most frequent objects and what prompts without a subject give away."""
    told = []
    for series in models.present(own[own["trained"]]):
        best = best_layer(own, series.key)
        if best is None:
            continue
        here = own[(own["series"] == series.key) & (own["layer"] == best.layer) & own["trained"]]
        blind = float(here["without_subject"].mean())
        alone = "" if math.isnan(blind) else f", and prompts without their subject {number(blind, 2)}"
        told.append(
            f"{series.label} fills in {estimate_text(best.estimate)} of the facts rightly in layer {best.layer} of "
            f"{best.top}{alike_text(best)}; the most frequent objects would be right for "
            f"{number(float(here['baseline'].mean()), 2)}{alone}."
        )
    return [sentence_start(one) for one in told]
