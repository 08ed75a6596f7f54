"""How many examples a probe needs, and from which layer single examples are right."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pandas as pd

from infoflow.report._curves import first_seed
from infoflow.report._figure import Panel, ReportFigure
from infoflow.report._in_words import Candidate, Samples, by_answer, clear_cases, estimate_text, extremes_words
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._chart import amount, bounded, finished, tips
from infoflow.report.forms._lines import SHARE, control_lines, lines, looks_of, names_above
from infoflow.report.forms._marks import HOLLOW, span

from ..measures import PROBE_EXAMPLES, PROBE_SCORES
from ._rows import (
    PROBES,
    all_examples,
    any_trained,
    best_layers,
    case_name,
    left_out_note,
    most_layered,
    of,
    one_probe,
    task_label,
    tasks_of,
)

_HEIGHT = 230


def examples_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per task; None if probes were only trained on all examples."""
    own = one_probe(of(frame, metric="accuracy", words="all", labels="task"))
    sizes = own.groupby([own["task"].astype(str), "series"])["training"].nunique() if "training" in own else pd.Series()
    if not any_trained(own) or not bool((sizes > 1).any()) or "share" not in own:
        return None
    own = own[own["task"].astype(str).isin(set(sizes[sizes > 1].index.get_level_values(0)))]
    found = {task: _at_best(of(own, task=task), models) for task in tasks_of(own)}
    shown = most_layered(own, list(found))
    data = pd.concat([_curves(rows).assign(task=task) for task, rows in found.items()], ignore_index=True)
    seeds = int(data["seeds"].max())
    bands = (
        f"means over {seeds} seeds, 95% intervals over seeds and sentences"
        if seeds > 1
        else f"95% intervals over sentences, {HOLLOW}"
    )
    return ReportFigure(
        id="probe-examples",
        question="How many examples does a probe need?",
        answer=_larger_with_few({task: found[task] for task in shown}, models),
        words=_words({task: found[task] for task in shown}, models),
        panels=[Panel(spec=_chart(data[data["task"] == task], models), title=task_label(task)) for task in shown],
        caption=f"Bands: {bands}. Each model is shown at its best layer with all examples, the untrained model at "
        f"the same layer.{left_out_note(found, shown)}",
        how_to_read=[
            "Across: training examples of the probe, on a log scale. Up: accuracy on the same test part.",
            "Dashed grey: an untrained model at the same layer. With many examples a probe may learn from random "
            "vectors nearly as well; what training made easy to read shows with few examples. It would be surprising "
            "if the gap were the same everywhere.",
        ],
        method=PROBES,
        data=data,
        tables=(PROBE_SCORES.name,),
        findings=("probing:P-2",),
    )


def _at_best(own: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    bests = best_layers(all_examples(own), models)
    parts = [own[(own["series"] == line.key) & (own["layer"] == best.layer)] for line, best in bests.items()]
    return pd.concat(parts, ignore_index=True)


def _curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval for each line and share of the examples."""
    found: list[dict[str, Any]] = []
    for (series, trained, share), own in rows.groupby(["series", "trained", "share"], sort=True):  # type: ignore[misc]
        estimate = Samples.of(own).estimate()
        group = "trained" if trained else "untrained"
        keys = {"series": series, "group": group, "share": float(share), "layer": int(own["layer"].iloc[0])}
        examples = int(own["training"].median())
        found.append({**keys, "training": examples, **asdict(estimate), "shown": estimate_text(estimate)})
    return pd.DataFrame(found)


def _chart(rows: pd.DataFrame, models: ModelSelection) -> dict[str, Any]:
    rows = bounded(rows, SHARE)
    series = models.present(rows)
    ends = [int(rows["training"].min()), int(rows["training"].max())]
    at = {
        "x": amount("x", "training", "training examples", ends, type="log", zero=None, format="~s"),
        "y": amount("y", "value", "accuracy", span(rows[["low", "value", "high"]], margin=0.06, flat=0.05)),
    }
    trained, untrained = (rows[rows["group"] == group] for group in ("trained", "untrained"))
    tooltip = tips("series:N|model", "training:Q|examples|,", "layer:Q|layer", "shown:N|accuracy")
    names = [("●", one.label, one.color) for one in series]
    names += [("– –", "untrained", "var(--control)")] if len(untrained) else []
    drawn = lines(trained, at, looks_of(series), size=34, touch=0, tooltip=tooltip)
    return finished([*control_lines(untrained, at), *drawn, names_above(names)], _HEIGHT)


def _larger_with_few(found: dict[str, pd.DataFrame], models: ModelSelection) -> list[str]:
    """In how many cases the gain from training clearly differs between the fewest and all examples."""
    every = [(few - whole).estimate() for rows in found.values() for _, few, whole in _gaps(rows, models)]
    larger, smaller = (sum(gap.sign == sign for gap in every) for sign in (1, -1))
    text = f"The gap is clearly larger with few examples in {larger} of {len(every)} cases (tasks and models), clearly "
    return [f"{text}smaller in {smaller}."] if every else []


def _words(found: dict[str, pd.DataFrame], models: ModelSelection) -> str:
    stated = [
        Candidate.held_out(case_name(task, series.label), few)
        for task, rows in found.items()
        for series, few, _ in _gaps(rows, models)
    ]
    fewest = int(min(rows["training"].min() for rows in found.values()))
    what = f"with {fewest:,} examples, the gain in accuracy over an untrained model"
    return extremes_words(what, stated, end=clear_cases(stated))


def _gaps(rows: pd.DataFrame, models: ModelSelection) -> list[tuple[Series, Samples, Samples]]:
    """The gain from training with the fewest and with all examples, per line with an untrained twin."""
    found = []
    for series, own in models.each(rows):
        shares = sorted(own["share"].unique())
        ends = [own[own["share"] == share] for share in (shares[0], shares[-1])]
        few, whole = (Samples.of(end[end["trained"]]) - Samples.of(end[~end["trained"]]) for end in ends)
        if few and whole and len(shares) > 1:
            found.append((series, few, whole))
    return found


_TASKS, _OF_TASK = 4, 6  # tasks, and examples per task
_WORDS = 24  # words of a sentence; longer ones are cut around the span
_STATES = {-2: "right in no state", -1: "right only below the top", 0: "right in all states"}


def solved_figure(frame: pd.DataFrame, scores: pd.DataFrame | None, models: ModelSelection) -> ReportFigure | None:
    """A few examples per task, with a row of layers for each model; None without examples."""
    own = first_seed(frame)
    lines = list(models.present(own[own["trained"]])) if len(own) else []
    if not lines:
        return None
    tasks = tasks_of(own)
    shown = (
        most_layered(scores[scores["metric"] == "accuracy"], tasks, _TASKS) if scores is not None else tasks[:_TASKS]
    )
    cards = [card for task in shown if (card := _card(own[own["task"].astype(str) == task], lines)) is not None]
    if not cards:
        return None
    return ReportFigure(
        id="probe-solved",
        question="Which words does the probe label correctly, and from which layer on?",
        words=_solved_words(own[own["task"].astype(str).isin(shown)], lines),
        panels=[],
        caption=f"Single test examples. A hash of their text chose {own['example'].nunique()} before anything was "
        f"trained. For each state, the figure shows the first example that the probe of {lines[0].label} labels "
        "correctly from that state on: this shows the range, not how often each case occurs. The examples illustrate, "
        "and prove nothing.",
        how_to_read=[
            "Each row is a sentence with the labelled words marked (the second one of a pair dotted), and the correct "
            "label. The strips below it are models, a square for each state from the embeddings (left) to the top: "
            "full where all seeds of the probe are right, empty where none is. Point at a square for the label that "
            "most of them give.",
            "Grey: the same architecture with random weights. Where it is right too, the probe needs only the words.",
        ],
        method=PROBES,
        data=own[own["task"].astype(str).isin(shown)].drop(columns=["same_as"], errors="ignore"),
        tables=(PROBE_EXAMPLES.name,),
        template="solved.html.jinja",
        payload={"cards": cards},
    )


def _card(own: pd.DataFrame, lines: list[Series]) -> dict[str, Any] | None:
    first = own[own["trained"] & (own["series"] == lines[0].key)]
    if first.empty:
        return None
    picked = _picked({int(number): solved_from(rows) for number, rows in first.groupby("example")})
    examples = [_example(own[own["example"] == number], lines, stated) for number, stated in picked]
    return {"task": task_label(str(own["task"].iloc[0])), "examples": examples}


def solved_from(rows: pd.DataFrame) -> int:
    """The first state from which most probes stay right up to the top.

    −1 if they are right only below the top, −2 if never.
    """
    right = (rows.sort_values("layer")["right"].to_numpy(float) > 0.5).tolist()
    if not any(right):
        return -2
    if not right[-1]:
        return -1
    return len(right) - next((index for index, one in enumerate(reversed(right)) if not one), len(right))


def _picked(solved: dict[int, int]) -> list[tuple[int, int]]:
    """The first example of each layer, at most `_OF_TASK` in all.

    Layers are spread over the depth. An example that is right only below the top and one that is never right come last.
    """
    by_layer = {from_: number for number, from_ in sorted(solved.items(), reverse=True)}
    layers = sorted(from_ for from_ in by_layer if from_ >= 0)
    room = _OF_TASK - sum(kind in by_layer for kind in (-1, -2))
    if len(layers) > room:
        layers = sorted({layers[round(index * (len(layers) - 1) / (room - 1))] for index in range(room)})
    return [(by_layer[kind], kind) for kind in (*layers, -1, -2) if kind in by_layer]


def _example(rows: pd.DataFrame, lines: list[Series], solved: int) -> dict[str, Any]:
    one = rows.iloc[0]
    return {
        "pieces": list(_marked(str(one["text"]).split(" "), one)),
        "gold": str(one["gold"]),
        "told": _STATES.get(solved, f"right from state {solved} on"),
        "strips": [strip for line in lines for strip in _strips(rows[rows["series"] == line.key], line)],
    }


def _marked(words: list[str], one: pd.Series) -> Iterator[dict[str, Any]]:
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
    for trained, own in sorted(rows.groupby("trained"), key=lambda part: not part[0]):
        cells = [
            {"layer": int(row.layer), "right": float(row.right), "said": str(row.said), "share": f"{row.right:.0%}"}
            for row in own.sort_values("layer").itertuples()
        ]
        name = line.label if trained else f"{line.label}, untrained"
        yield {
            "name": name,
            "color": line.color if trained else "var(--soft)",
            "trained": bool(trained),
            "cells": cells,
        }


def _solved_words(own: pd.DataFrame, lines: list[Series]) -> str:
    """How many examples are right only above the embeddings, for each model and for the untrained ones."""

    def counted(rows: pd.DataFrame) -> str:
        task = rows["task"].astype(str)
        of = [solved_from(each) for _, each in rows.groupby([task, "series", "example"])]
        return f"{sum(layer > 0 for layer in of)} of {len(of)}" if of else ""

    by_model = {line.label: counted(own[own["trained"] & (own["series"] == line.key)]) for line in lines}
    untrained = counted(own[~own["trained"]])
    start = "examples that are right only from a state above the embeddings on: "
    return by_answer(by_model | ({"untrained models": untrained} if untrained else {}), start)
