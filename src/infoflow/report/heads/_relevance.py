"""Relevance and confidence: each layer's heads, the most relevant first, coloured by function."""

from functools import reduce
from typing import Any

import pandas as pd

from infoflow.heads import HEAD_CONFIDENCE, HEAD_RELEVANCE

from .._figure import Method, Panel, ReportFigure
from .._in_words import (
    Candidate,
    Estimate,
    Samples,
    chosen,
    estimate_text,
    extremes_words,
    listed,
    number,
    percent_over_models,
    percent_span,
    plain,
)
from .._model_selection import ModelSelection
from .._theme import Series
from ..forms._chart import CONTROL, NAME, by_key, finished, tips
from ..forms._marks import Constant, Layer, draw
from ..forms._rows import cells, squares
from ._matter import correlation_text, named_by, rank_correlation
from ._roles import FUNCTION_COLORS, NO_FUNCTION, chance_note, function_legend, held_functions, trained_roles
from ._statistics import KEYS, Statistic, head_statistics

_METHOD = Method(
    id="head-functions",
    title="Relevance, confidence and functions of heads",
    text="""
    Relevance: the head's share, at the input of the output projection, of what its layer contributes to the predicted
    token's logit. Confidence: mean over queries of the strongest attention weight. Functions: positional, if at least
    90% of queries look most at one offset; syntactic, if the head finds the other end of a relation ten points more
    often than the relation's best offset does; rare token, if half of the queries look most at the sentence's rarest
    token. A function is chosen on one half of the sentences; on the other, the whole 95% interval must exceed its
    limit; if several do, the clearest counts. After Voita et al. (2019).
    """,
)
_LABELLED = 8  # heads per layer up to which squares hold their numbers
_ROW = 22  # pixels per layer


def relevance_figure(frames: dict[str, pd.DataFrame], models: ModelSelection) -> ReportFigure | None:
    """Self-attention heads of each model's main stack; without relevance they are sorted by confidence.

    None without confidence, or if nothing else is known about the heads.
    """
    rows, statistics = head_statistics(frames)
    found = {one.id.partition("-")[0]: one for one in reversed(statistics)}
    shown = {name: found[name] for name in ("relevance", "confidence") if name in found}
    roles = trained_roles(frames)
    if "confidence" not in shown or (len(shown) == 1 and roles.empty):
        return None
    rows = models.main(rows.loc[rows["kind"] == "self"])
    table = _table(rows, shown, held_functions(roles))
    trained = table.loc[table["trained"]]
    if trained.empty:
        return None
    series = models.present(trained)
    relevance = shown.get("relevance")
    first = trained.loc[trained["seed"] == trained["seed"].min()]
    tops = {name: float(first[name].max()) or 1.0 for name in shown}
    return ReportFigure(
        id="head-relevance",
        question="Which heads does each layer rely on, and what do they do?",
        answer=[*([_agreement(table, series)] if relevance else []), _functions(trained, series)],
        words=_words(rows, relevance, series) if relevance else "",
        panels=[Panel(spec=_chart(first[first["series"] == one.key], shown, tops), title=one.label) for one in series],
        caption=_caption(rows, trained, shown),
        how_to_read=[
            f"Rows: layers, from bottom (0) to top. In each, the head with the largest {next(iter(shown))} is at the "
            f"left{'; the right half shows the confidence of the heads in the same order' * (len(shown) > 1)}. "
            "The stronger the colour, the larger the number; the colour itself is the head's function.",
            "If a few heads did the work of a layer, its squares would fade quickly from the left. If models relied "
            "on heads that are sure where to look, both halves would look alike.",
            *([chance_note(roles)] if len(roles) else []),
        ],
        method=_METHOD,
        data=table.drop(columns="place"),
        tables=tuple(name for name in (HEAD_RELEVANCE.name, HEAD_CONFIDENCE.name) if name in frames),
        findings=("heads:V6", "heads:V7", "heads:V8"),
        template="keyed.html.jinja",
        payload={"legend": function_legend()},
    )


def _table(rows: pd.DataFrame, shown: dict[str, Statistic], functions: pd.DataFrame) -> pd.DataFrame:
    """One row per head: both statistics, its function, and its place in its layer."""
    parts = [named_by(rows, one, name).dropna(subset=name) for name, one in shown.items()]
    table = reduce(lambda one, other: one.merge(other, on=KEYS), parts)
    table = table.merge(functions, on=[name for name in KEYS if name != "trained"], how="left")
    function = table["function"].astype(object).where(table["trained"], None)  # an untrained model has none
    table["function"] = function.where(function.notna(), NO_FUNCTION)
    layers = table.groupby(["series", "seed", "trained", "stack", "layer"])[next(iter(shown))]
    table["place"] = layers.rank(method="first", ascending=False).astype(int) - 1
    return table.sort_values(["series", "seed", "trained", "layer", "place"], ignore_index=True)


def _words(rows: pd.DataFrame, relevance: Statistic, series: list[Series]) -> str:
    """The share of a layer's most relevant head, chosen on one half of the sentences, and an equal share."""
    own = rows.loc[(rows["statistic"] == relevance.id) & rows["trained"]]
    found = [Candidate(f"in {one.label}", _largest_share(own[own["series"] == one.key])) for one in series]
    equal = percent_span([1 / own.loc[own["series"] == one.key, "head"].nunique() for one in series])
    return extremes_words(
        "in an average layer, the most relevant head's share of relevance",
        found,
        "%",
        end=f"with equal shares it would be {equal}",
    )


def _largest_share(rows: pd.DataFrame) -> Estimate:
    shares: dict[object, float] = {}
    for seed, own in rows.groupby("seed"):
        heads = [{row["head"]: Samples.of_row(row) for row in at.to_dict("records")} for _, at in own.groupby("layer")]
        tops = [top.estimate.value for layer in heads if (top := chosen(layer))]
        shares |= {seed: sum(tops) / len(tops)} if tops else {}
    return percent_over_models(shares) if shares else plain(float("nan"))


def _agreement(table: pd.DataFrame, series: list[Series]) -> str:
    clauses = []
    for one in series:
        own = table[table["series"] == one.key]
        trained, untrained = (
            rank_correlation(own[own["trained"] == which], "relevance", "confidence").estimate()
            for which in (True, False)
        )
        if trained.seeds:
            before = f" (untrained {number(untrained.value, 2)})" if untrained.seeds else ""
            clauses.append(f"{correlation_text(trained)} in {one.label}{before}")
    return f"Rank correlation of relevance and confidence over heads: {listed(clauses) or 'unknown'}."


def _functions(trained: pd.DataFrame, series: list[Series]) -> str:
    """How many heads have each function, and how confident they are."""
    clauses = []
    for one in series:
        own = trained[trained["series"] == one.key]
        parts = []
        for name in FUNCTION_COLORS:
            if len(heads := own[own["function"] == name]):
                mean = Samples.bare(heads.groupby("seed")["confidence"].mean().to_dict()).estimate()
                named = "with none" if name == NO_FUNCTION else f"{name} head{'s' * (len(heads) > 1)}"
                parts.append(f"{len(heads)} {named} at {estimate_text(mean)}")
        clauses.append(f"{one.label}, {listed(parts)}")
    return f"Heads with each function, counted over all seeds, and their mean confidence: {'; '.join(clauses)}."


def _caption(rows: pd.DataFrame, trained: pd.DataFrame, shown: dict[str, Statistic]) -> str:
    seeds = int(trained["seed"].nunique())
    several = f"Drawn: seed {trained['seed'].min()} of {seeds}; intervals in the text are over seeds. " * (seeds > 1)
    count = int(rows.loc[rows["statistic"] == shown["confidence"].id, "count"].median())
    controls = listed([one.control for one in shown.values()])
    return (
        f"{several}Self-attention of the stack that all models have; about {count:,} queries per head. Dashed "
        f"frames show the control of the layer's heads: {controls}."
    )


def _chart(own: pd.DataFrame, shown: dict[str, Statistic], tops: dict[str, float]) -> dict[str, Any]:
    """The statistics side by side, each followed by its control in a dashed frame."""
    heads, layers = int(own["place"].max()) + 1, sorted({int(layer) for layer in own["layer"]}, reverse=True)
    x = cells("x", "column", None, list(range((heads + 2) * len(shown) - 1)), whole=True, labels=False)
    y = cells("y", "layer", "layer", layers)
    height, marks = max(_ROW * len(layers), 60), []
    for block, (name, one) in enumerate(shown.items()):
        start = block * (heads + 2)
        rows = own[["layer", "head", "function"]].assign(
            strength=(own[name] / tops[name]).round(4),
            column=own["place"] + start,
            text=[_short(value) for value in own[name]],
            shown=[
                f"{value:.3f} ({low:.3f} to {high:.3f})"
                for value, low, high in zip(own[name], own[f"{name}_low"], own[f"{name}_high"], strict=True)
            ],
            control=own[f"{name}_control"].round(3),
        )
        tooltip = tips("layer:O", "head:O", "function:N", f"shown:N|{name}", f"control:Q|{one.control}")
        color = by_key("color", "function", list(FUNCTION_COLORS), list(FUNCTION_COLORS.values()))
        text = "text:N" if heads <= _LABELLED else None
        marks += squares(rows, x, y, "strength", color=color, text=text, size=9, tooltip=tooltip)
        marks += _control(own, name, start + heads, {"x": x, "y": y}, one.control)
        title = pd.DataFrame([{"column": start, "text": name}])
        below = {"align": "left", "dx": -8, "baseline": "top", "y": Constant(height + 5), "color": "var(--soft)"}
        marks.append(draw("text", title, NAME, below, x=x, text="text:N"))
    return finished(marks, height)


def _control(own: pd.DataFrame, name: str, column: int, at: dict[str, Any], meaning: str) -> list[Layer]:
    """The control of each layer: the mean over its heads, whose controls hardly differ."""
    rows = own.groupby("layer", as_index=False)[f"{name}_control"].mean().assign(column=column)
    rows["text"] = [_short(value) for value in rows[f"{name}_control"]]
    tooltip = tips("layer:O", f"text:N|{meaning}")
    return [
        draw("rect", rows, CONTROL, at, filled=False, strokeWidth=1, strokeDash=[2, 2], tooltip=tooltip),
        draw("text", rows, at, fontSize=9, text="text:N", color="var(--soft)"),
    ]


def _short(value: float) -> str:
    """`.26`, to fit into a square."""
    return f"{value:.2f}".replace("-", "−").replace("0.", ".")
