"""What each objective does to one training example: the inputs of its model, and the targets of its loss."""

from typing import Any

import pandas as pd

from infoflow.objectives import NO_TARGET, stacks
from infoflow.results import OBJECTIVE_EXAMPLES

from .._figure import DeclaredFigure, Drawn, Method
from .._in_words import listed, sentence
from .._model_selection import ModelSelection
from .._theme import objective_label

OBJECTIVES = Method(
    id="objectives",
    title="Inputs and targets",
    text="""
    Examples are made as in training: by the objective's own code, with the noise of the first epoch. The one shown has
    the fewest word pieces among the thousand training examples whose length is closest to 16 tokens. <code>infoflow
    data show "a sentence"</code> does the same for any text.
    """,
)
_MOST = 60  # tokens of a line
_SAMPLES = "Random tokens of the text stand for the samples of ELECTRA's generator, which change while it learns."


def _examples(table: pd.DataFrame, models: ModelSelection) -> Drawn:
    order = {series.key: place for place, series in enumerate(models.series)}
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
    method=OBJECTIVES,
    tables=(OBJECTIVE_EXAMPLES.name,),
    template="examples.html.jinja",
    draw=_examples,
)
