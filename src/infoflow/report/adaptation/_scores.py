"""Objective by task: how well each pretrained model does once it is tuned."""

from typing import Any

import pandas as pd

from infoflow.results import score_bounds

from .._figure import Panel, ReportFigure
from .._numbers import estimate_text, listed, number
from .._samples import Samples
from .._shown_models import ShownModels
from ..forms._chart import color_of, shape_of, tips
from ..forms._dots import interval_dots
from ._methods import SCORES
from ._rows import (
    FROM_SCRATCH,
    MOST_TASKS,
    SCORED,
    SHUFFLED,
    averaged,
    bands,
    beside_shuffled,
    estimated,
    left_out,
    most_examples,
    names_of,
    of,
    plain,
    tasks_of,
    way_of,
)

_TOLD = 6
_CONTROLS = {"untrained": (FROM_SCRATCH, "cross", "✚"), SHUFFLED: (SHUFFLED, "triangle-down", "▼")}
"""Group of rows → what the control is called, its mark, and that of the legend."""


def scores_figure(scores: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for each task; None where nothing was tuned in full."""
    own = averaged(most_examples(plain(scores)), SCORED)
    if not bool(own["trained"].any()):
        return None
    own = own[own["task"].isin(own.loc[own["trained"], "task"])]  # others were tuned from scratch alone
    plainly = estimated(own, SCORED, score_bounds)
    data = names_of(beside_shuffled(plainly, scores, SCORED, score_bounds), models)
    tasks = tasks_of(data)
    return ReportFigure(
        id="tuned-scores",
        question="Which pretraining serves which task?",
        answer=[*_best(own, tasks, models), *_from_scratch(own)],
        panels=[
            Panel(spec=_chart(of(data, task=task), models), title=_title(data, task)) for task in tasks[:MOST_TASKS]
        ],
        caption=f"{bands(plainly)} Tuned: {way_of(scores)}; most labelled examples.{left_out(tasks)}",
        how_to_read=_how_to_read(data, models),
        method=SCORES,
        data=data,
        tables=("tuned_scores",),
        findings=tuple(f"adaptation:A-{number}" for number in (7, 8, 9, 10)),
        payload={"apart": True},
    )


def _how_to_read(data: pd.DataFrame, models: ShownModels) -> list[str]:
    row = "an objective of pretraining" if models.by == "objective" else "a model"
    told = [
        f"A row is {row}, across is the task's main metric on test examples, 1 the best. The dashed tick is the best "
        "guess without a model; it would be surprising if a tuned model were not above it.",
    ]
    if "untrained" in set(data["group"]):
        told.append(
            "The grey cross is the same model tuned from random weights, on the same examples: what lies between cross "
            "and mark is what pretraining gained."
            + " It would be surprising if crosses differed much between rows of one architecture: their models differ "
            "in nothing but whether they may look ahead." * (data["series"].nunique() > 1)
        )
    if SHUFFLED in set(data["group"]):
        told.append(
            "The grey triangle is the pretrained model tuned on labels that changed places: there is nothing to learn, "
            "so it should be no better than the guess. What a mark has above it comes from the labels."
        )
    return told if len(told) > 1 else [*told, "No control was tuned: neither from random weights nor on other labels."]


def _title(data: pd.DataFrame, task: str) -> str:
    return f"{task} ({int(of(data, task=task)['examples'].max()):,} labelled examples)"


def _chart(rows: pd.DataFrame, models: ShownModels) -> dict[str, Any]:
    rows = rows.assign(label=rows["name"])
    trained, grey = rows[rows["group"] == "trained"], rows[rows["group"] != "trained"]
    controls = {group: control for group, control in _CONTROLS.items() if group in set(grey["group"])}
    looks = pd.DataFrame([controls[group] for group in grey["group"]], grey.index, ["control", "shape", "mark"])
    names = [(mark, name, "var(--control)") for name, _, mark in controls.values()]
    series, told = models.present(trained), "pretrained for" if models.by == "objective" else "model"
    return interval_dots(
        trained.assign(short=[number(value, 2) for value in trained["value"]]),
        {"color": color_of(series), "shape": shape_of(series)},
        title="score (1: the best)",
        tooltip=tips(f"label:N|{told}", "shown:N|score", "baseline:Q|best guess|.2f"),
        step=32,
        grey=grey.assign(control=looks["control"], shape=looks["shape"]),
        legend=[*names, ("┆", "best guess", "var(--control)")] if names else None,
    )


def _best(own: pd.DataFrame, tasks: list[str], models: ShownModels) -> list[str]:
    """Of each task the highest score, and what is not told apart from it; the score, where there is one line."""
    told = []
    for task in tasks[:_TOLD]:
        rows = of(own, task=task, trained=True)
        samples = {one: Samples.of(of(rows, series=one.key)) for one in models.present(rows)}
        best = max(samples, key=lambda one: samples[one].estimate().value)
        alike = [one.label for one in samples if one != best and not (samples[best] - samples[one]).estimate().sign]
        others = f" (not told apart: {listed(alike)})" if alike else ""
        does = "does best," if len(samples) > 1 else "has"
        told.append(f"On {task} {best.label} {does} {estimate_text(samples[best].estimate())}{others}.")
    return told


def _from_scratch(own: pd.DataFrame) -> list[str]:
    """What pretraining gains, from the least to the most of all lines; over the tasks tuned from scratch too."""
    gains = {}
    states = own.groupby(["series", "seed", "task"])["trained"].transform("nunique")
    for series, rows in averaged(own[states > 1], []).groupby("series", sort=False):
        both = [Samples.of(rows[rows["trained"] == which]) for which in (True, False)]
        if all(both):
            gains[series] = (both[0] - both[1]).estimate()
    if not gains:
        return []
    ends = sorted(gains.values(), key=lambda one: one.value)
    if len(ends) == 1:
        return [f"Pretraining gains {estimate_text(ends[0])} over tuning from scratch, mean over tasks."]
    return [
        f"Over tuning from scratch, pretraining gains least {estimate_text(ends[0])} and most "
        f"{estimate_text(ends[-1])}, means over tasks."
    ]
