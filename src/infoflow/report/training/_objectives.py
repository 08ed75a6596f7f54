"""What each objective does to one training example, and what models share and cost: the tables behind comparisons."""

from typing import Any

import pandas as pd

from infoflow.objectives import NO_TARGET, stacks
from infoflow.results import MATCH as MATCH_TABLE
from infoflow.results import OBJECTIVE_EXAMPLES

from .._figure import DeclaredFigure, Drawn, Method, Panel
from .._in_words import listed, number, sentence
from .._model_selection import ModelSelection
from .._theme import objective_label
from ..forms._chart import color_of, shape_of, tips
from ..forms._rows import interval_dots

_OBJECTIVES = Method(
    id="objectives",
    title="Inputs and targets",
    text="""
    Examples are made as in training: by the objective's own code, with the noise of the first epoch. The one shown has
    the fewest word pieces among the thousand training examples whose length is closest to 16 tokens. <code>infoflow
    data show "a sentence"</code> does the same for any text.
    """,
)
_MOST = 60  # tokens of a line
_SAMPLES = "Random tokens of the text stand in for the samples of ELECTRA's generator, which change while it learns."


def _examples(table: pd.DataFrame, models: ModelSelection) -> Drawn:
    order = {series.key: index for index, series in enumerate(models.series)}
    slots = {series.key: series.slot for series in models.series}
    table = table.sort_values("series", key=lambda keys: keys.map(order).fillna(len(order)), kind="stable")
    rows, counts = [], dict[str, int]()
    for key, own in table.groupby("series", sort=False):
        label = objective_label(str(own["objective"].iloc[0]), str(own["variant"].iloc[0]))
        inputs, targets = (own[own["part"] == part] for part in ("inputs", "targets"))
        rows.append({"label": label, "slot": slots.get(str(key), ""), "cells": [_stacks(inputs), _stacks(targets)]})
        first = targets[targets["line"] == next(iter(targets["line"]), "")]
        counts[label] = int((first["token"] != NO_TARGET).sum())
    samples = _SAMPLES if "electra" in set(table["objective"]) else ""
    return Drawn(
        data=table[["objective", "variant", "part", "line", "place", "token"]],
        panels=[],
        answer=[f"Targets in these examples: {listed([f'{number} in {label}' for label, number in counts.items()])}."],
        words=_words(counts),
        caption="One training example of each objective, as its model of the first seed read it in the first epoch. ## "
        "marks a token that continues a word; · marks a position without a target.",
        payload={"rows": rows},
        facts={"samples": samples},
    )


def _words(counts: dict[str, int]) -> str:
    most, fewest = max(counts, key=lambda label: counts[label]), min(counts, key=lambda label: counts[label])
    return sentence(f"{most} has the most targets in an example, {fewest} the fewest") if len(counts) > 1 else ""


def _stacks(lines: pd.DataFrame) -> list[dict[str, Any]]:
    """Lines of tokens, position by position, with what describes a token below it."""
    every = {str(name): own.sort_values("place")["token"].tolist() for name, own in lines.groupby("line", sort=False)}
    found = [(list(stack), list(zip(*stack.values(), strict=True))) for stack in stacks(every)]
    return [{"names": names, "columns": columns[:_MOST], "more": len(columns[_MOST:])} for names, columns in found]


EXAMPLES_FIGURE = DeclaredFigure(
    name="training/objectives",
    id="objective-examples",
    question="How does each objective turn a sentence into inputs and targets?",
    how_to_read=(
        "Inputs are what the model reads; targets are what its loss compares the output with. An encoder with a "
        "decoder has two inputs.",
        "Where a token has further inputs, such as segment and position in BERT's pairs, they are shown below it.",
        "{samples}",
    ),
    method=_OBJECTIVES,
    tables=(OBJECTIVE_EXAMPLES.name,),
    template="examples.html.jinja",
    draw=_examples,
)


_MATCH = Method(
    id="match",
    title="What was matched",
    text="""
    Operations are those of matrix products and attention, forward and backward (a multiplication and an addition count
    as two). They are counted during some updates of the training and scaled to the whole training by its number of
    tokens. For one stack, they come to about 6 per parameter and token plus 12 <i>L T d</i> for attention (Kaplan et
    al. 2020). Norms, activations, look-ups and the optimiser are left out. Initial weights are compared by tensor: a
    random one matches if it equals, bit for bit, one of the masked LM with BERT's blocks and the same seed.
    """,
)
_NUMBERS = ("parameters", "measured_parameters", "flops", "updates", "source_tokens", "target_tokens")
_COLUMNS = (*_NUMBERS, "supervised_tokens")
_TITLES = {
    "parameters": "parameters",
    "measured_parameters": "measured",
    "flops": "operations",
    "updates": "updates",
    "source_tokens": "source tokens",
    "target_tokens": "target tokens",
    "supervised_tokens": "supervised tokens",
}
_Z = 1.96


def _match(match: pd.DataFrame, models: ModelSelection) -> Drawn:
    """Operations of every model relative to the first one's, and the table of what else is held fixed."""
    rows = _means(match, models)
    known = [series for series in models.series if series.key in set(rows["series"])]
    chart = interval_dots(
        rows.assign(value=rows["flops"], low=rows["flops"] - rows["error"], high=rows["flops"] + rows["error"]),
        {"color": color_of(known), "shape": shape_of(known)},
        title="operations in training",
        bounds=(0.0, float("inf")),
        tooltip=tips("label:N", "flops:Q|operations|.3s", "times:Q|times the least|.2f"),
        step=26,
        zero=True,
        format="~s",
    )
    others = rows[~rows["initialisation"].str.startswith("matched")].to_dict("records")
    notes = [f"{row['label']}: {row['initialisation'].partition(': ')[2]}." for row in others]
    return Drawn(
        data=rows.drop(columns=["series", "label"]),
        panels=[Panel(spec=chart)],
        answer=_sentences(rows),
        caption="One row per objective"
        + (" and architecture" if len(set(rows["architecture"])) > 1 else "")
        + ", means over seeds; lines are 95% intervals, from the updates whose operations were counted.",
        payload={"columns": [_TITLES[name] for name in _COLUMNS], "rows": _table(rows, models), "notes": notes},
    )


def _means(match: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """One row per objective and architecture: means over seeds, and the first seed's statement on initial weights."""
    order = {series.key: at for at, series in enumerate(models.series)}
    several = len(set(match["architecture"])) > 1
    rows = []
    groups: Any = match.groupby(["series", "architecture"], sort=False)
    for (key, family), own in groups:
        label = objective_label(str(own["objective"].iloc[0]), str(own["variant"].iloc[0]))
        row = {"series": key, "architecture": family, "label": f"{label}, {family}" if several else label}
        row |= {name: float(own[name].mean()) for name in _COLUMNS}
        error = float((own["flops_error"].fillna(0.0) ** 2).sum() ** 0.5) / len(own)
        rows.append(row | {"error": _Z * error, "initialisation": str(own["initialisation"].iloc[0])})
    table = pd.DataFrame(rows)
    table["times"] = table["flops"] / table["flops"].min()
    families = list(dict.fromkeys(match["architecture"]))
    return table.sort_values(
        ["architecture", "series"],
        key=lambda keys: keys.map(order).fillna(len(order)) if keys.name == "series" else keys.map(families.index),
        kind="stable",
        ignore_index=True,
    )


def _sentences(rows: pd.DataFrame) -> list[str]:
    least, most = (rows.loc[place] for place in (rows["flops"].idxmin(), rows["flops"].idxmax()))
    found = [
        f"Operations differ by a factor of up to {number(float(most['times']), 2)}: fewest for {least['label']} "
        f"({_short(least['flops'])}), most for {most['label']} ({_short(most['flops'])})."
    ]
    same = [name for name in ("updates", "source_tokens") if len(set(rows[name])) == 1]
    if same:
        least, most = (_short(end) for end in (rows["supervised_tokens"].min(), rows["supervised_tokens"].max()))
        shared = listed([f"{_short(rows[name].iloc[0])} {_TITLES[name]}" for name in same])
        found.append(f"All had {shared}; supervised tokens range from {least} to {most}.")
    own = rows.loc[rows["initialisation"].str.startswith("its own"), "label"].tolist()
    if own:
        found.append(f"Initial weights could not be matched for {listed(own)}.")
    return found


def _table(rows: pd.DataFrame, models: ModelSelection) -> list[dict[str, Any]]:
    slots = {series.key: series.slot for series in models.series}
    return [
        {
            "label": row["label"],
            "slot": slots.get(row["series"], ""),
            "cells": [_short(row[name]) if row[name] else "–" for name in _COLUMNS],
            "text": row["initialisation"]
            .partition(":")[0]  # without the reason
            .replace("matched on the side that reads the text", "matched on the reading side"),
        }
        for row in rows.to_dict("records")
    ]


def _short(value: float) -> str:
    """Three digits: 1.23 × 10¹² from a billion on, 4.56 million from a million on, integers below."""
    if value >= 1e9:
        exponent = int(f"{value:e}".split("e")[1])
        power = str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{value / 10**exponent:.2f} × 10{power}"
    return f"{value / 1e6:.2f} million" if value >= 1e6 else f"{value:,.0f}"


MATCH_FIGURE = DeclaredFigure(
    name="training/cost",
    id="match",
    question="What did each model cost, and what did all models share?",
    how_to_read=(
        "The objectives of a study share the text, its order, the number of updates, the optimiser, the "
        "tokenizer and, where shapes allow, the initial weights. They cannot share everything: an encoder with a "
        "decoder has more parameters, a generator or a teacher costs extra operations, and a loss on all tokens "
        "supervises more of them.",
        "For claims about efficiency, compare operations, not updates. A better score says little if the model "
        "also used more operations.",
        "Initial weights are matched if all random ones equal those of the masked LM. They are matched on the "
        "reading side if this holds for the blocks that read the text, while a decoder or a head has no counterpart.",
    ),
    method=_MATCH,
    tables=(MATCH_TABLE.name,),
    template="match.html.jinja",
    draw=_match,
)
