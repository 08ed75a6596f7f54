"""Single examples: the layer from which a probe gets them right, in each model."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from infoflow.probing import PROBE_EXAMPLES, PROBE_SCORES

from .._declared import DeclaredFigure, Drawn
from .._in_words import by_answer
from .._numbers import listed
from .._series import Series
from .._shown_models import ShownModels
from ._methods import PROBES
from ._rows import most_layered, task_label, tasks_of

_TASKS, _OF_TASK = 4, 6  # tasks, and examples per task
_WORDS = 24  # words of a sentence; longer ones are cut around the span
_UNTRAINED = "untrained"


def _draw_solved(frame: pd.DataFrame, scores: pd.DataFrame, models: ShownModels) -> Drawn | None:
    """A few examples per task, with a row of layers for each model; None without examples."""
    own = _one_seed(frame)
    lines = list(models.present(own[own["trained"]])) if len(own) else []
    if not lines:
        return None
    tasks = tasks_of(own)
    shown = most_layered(scores[scores["metric"] == "accuracy"], tasks, _TASKS) if len(scores) else tasks[:_TASKS]
    cards = [card for task in shown if (card := _card(own[own["task"].astype(str) == task], lines)) is not None]
    if not cards:
        return None
    drawn = own[own["task"].astype(str).isin(shown)]
    return Drawn(
        data=drawn.drop(columns=["same_as"], errors="ignore"),
        panels=[],
        answer=[_sentence(own, shown, lines)],
        words=_words(drawn, lines),
        caption=f"Single test examples. Of the {own['example'].nunique()} that a hash of their text had chosen before "
        f"anything was trained, the first for each state from which on the probe of {lines[0].label} is right: picked "
        "to show the range, not how often it happens. They illustrate, and prove nothing.",
        payload={"cards": cards},
        tables=(PROBE_EXAMPLES.name,),
    )


SOLVED = DeclaredFigure(
    name="probing/single-examples",
    id="probe-solved",
    question="Which words are read rightly, and from which layer on?",
    how_to_read=(
        "Each row is a sentence with what is asked of it marked (of a pair the second one dotted), and its right "
        "label. The strips below it are models, a square for each state from the embeddings (left) to the top: "
        "full where all seeds of the probe are right, empty where none is. Point at a square for what most of "
        "them say.",
        "Grey: the same architecture with random weights. What it gets right too, a probe learns from the words.",
    ),
    method=PROBES,
    tables=(PROBE_EXAMPLES.name, PROBE_SCORES.name),  # scores choose the tasks
    template="solved.html.jinja",
    draw=_draw_solved,
)


def _one_seed(frame: pd.DataFrame) -> pd.DataFrame:
    """The models of each line's first seed."""
    if frame.empty or "seed" not in frame:
        return frame
    return frame[frame["seed"] == frame.groupby("series")["seed"].transform("min")]


def _card(own: pd.DataFrame, lines: list[Series]) -> dict[str, Any] | None:
    first = own[own["trained"] & (own["series"] == lines[0].key)]
    if first.empty:
        return None
    picked = _picked({int(number): solved_from(rows) for number, rows in first.groupby("example")})
    examples = [_example(own[own["example"] == number], lines, told) for number, told in picked]
    return {"task": task_label(str(own["task"].iloc[0])), "examples": examples}


def solved_from(rows: pd.DataFrame) -> int:
    """The first state from which most probes stay right up to the top.

    −1: right only below the top; −2: never right.
    """
    right = (rows.sort_values("layer")["right"].to_numpy(float) > 0.5).tolist()
    if not any(right):
        return -2
    if not right[-1]:
        return -1
    return len(right) - next((place for place, one in enumerate(reversed(right)) if not one), len(right))


def _picked(solved: dict[int, int]) -> list[tuple[int, int]]:
    """The first example of each layer, limited to `_OF_TASK`.

    A spread of layers, then one right only below the top, then one that no layer gets right.
    """
    by_layer = {from_: number for number, from_ in sorted(solved.items(), reverse=True)}
    layers = sorted(from_ for from_ in by_layer if from_ >= 0)
    room = _OF_TASK - sum(kind in by_layer for kind in (-1, -2))
    if len(layers) > room:
        layers = sorted({layers[round(place * (len(layers) - 1) / (room - 1))] for place in range(room)})
    return [(by_layer[kind], kind) for kind in (*layers, -1, -2) if kind in by_layer]


def _example(rows: pd.DataFrame, lines: list[Series], solved: int) -> dict[str, Any]:
    one = rows.iloc[0]
    return {
        "pieces": list(_pieces(str(one["text"]).split(" "), one)),
        "gold": str(one["gold"]),
        "told": _told(solved),
        "strips": [strip for line in lines for strip in _strips(rows[rows["series"] == line.key], line)],
    }


def _told(solved: int) -> str:
    if solved < 0:
        return "right below the top alone" if solved == -1 else "right in no state"
    return "right in all states" if solved == 0 else f"right from state {solved} on"


def _pieces(words: list[str], one: pd.Series) -> Iterator[dict[str, Any]]:
    """Split the sentence into pieces, cut around the queried words; these carry the number of their span."""
    spans = [(int(one[f"{span}_start"]), int(one[f"{span}_end"])) for span in ("first", "second")]
    mark = [next((n for n, (start, end) in enumerate(spans, 1) if start <= at < end), 0) for at in range(len(words))]
    if all(mark):  # the query covers the whole sentence
        mark = [0] * len(words)
    marked = [at for at, n in enumerate(mark) if n] or [0]
    low = max(0, min(marked[0], len(words) - _WORDS, (marked[0] + marked[-1] - _WORDS) // 2 + 1))
    high = max(low + _WORDS, marked[-1] + 1)
    if low:
        yield {"text": "…", "mark": 0}
    for at in range(low, min(high, len(words))):
        yield {"text": words[at], "mark": mark[at]}
    if high < len(words):
        yield {"text": "…", "mark": 0}


def _strips(rows: pd.DataFrame, line: Series) -> Iterator[dict[str, Any]]:
    """Squares of a line: of its trained model, and of its untrained one."""
    for trained, own in sorted(rows.groupby("trained"), key=lambda part: not part[0]):
        cells = [
            {"layer": int(row.layer), "right": float(row.right), "said": str(row.said), "share": f"{row.right:.0%}"}
            for row in own.sort_values("layer").itertuples()
        ]
        name = line.label if trained else f"{line.label}, {_UNTRAINED}"
        yield {
            "name": name,
            "color": line.color if trained else "var(--soft)",
            "trained": bool(trained),
            "cells": cells,
        }


def _words(own: pd.DataFrame, lines: list[Series]) -> str:
    """How many examples are right only above the embeddings, for each model and for the untrained ones."""

    def counted(rows: pd.DataFrame) -> str:
        task = rows["task"].astype(str)
        of = [solved_from(each) for _, each in rows.groupby([task, "series", "example"])]
        return f"{sum(layer > 0 for layer in of)} of {len(of)}" if of else ""

    by_model = {line.label: counted(own[own["trained"] & (own["series"] == line.key)]) for line in lines}
    untrained = counted(own[~own["trained"]])
    start = "examples that are right only from a state above the embeddings on: "
    return by_answer(by_model | ({"untrained models": untrained} if untrained else {}), start)


def _sentence(own: pd.DataFrame, tasks: list[str], lines: list[Series]) -> str:
    """For each task, how many examples the first line's probe gets right only from some layer on."""
    told = []
    rows = own[own["trained"] & (own["series"] == lines[0].key)]
    for task in tasks:
        of = [solved_from(each) for _, each in rows[rows["task"].astype(str) == task].groupby("example")]
        if of:
            told.append(f"{sum(layer > 0 for layer in of)} of {len(of)} for {task_label(task)}")
    return f"In {lines[0].label}, examples that are right only from a state above the embeddings on: {listed(told)}."
