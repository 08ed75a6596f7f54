"""Scores of tuned models: tables of systems and tasks, and methods of tuning."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from infoflow.report._figure import Panel, ReportFigure
from infoflow.report._in_words import Estimate, Samples, estimate_text, listed, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._chart import color_of, shape_of, tips
from infoflow.report.forms._rows import interval_dots
from infoflow.results import scale_of

from ..measures import TASK_SCORES
from ._rows import (
    AS_IS,
    AVERAGE,
    FROM_SCRATCH,
    FROZEN,
    FULL,
    METHODS,
    SCORED,
    SCORES,
    SHUFFLED,
    STRATEGIES,
    against_shuffled,
    averaged,
    bands,
    estimated,
    most_examples,
    names_of,
    of,
    plain,
    tasks_of,
    way_of,
    with_average,
)

_DESCRIBED = 6
_CONTROLS = {"untrained": (FROM_SCRATCH, "cross", "✚"), SHUFFLED: (SHUFFLED, "triangle-down", "▼")}
"""Group of rows → name, shape and legend mark of the control."""
_GUESS = "best guess"


def scores_figure(scores: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """Means over tasks as a chart, and the table of systems and tasks; None if nothing was fully tuned."""
    own = averaged(most_examples(plain(scores)), SCORED)
    if not bool(own["trained"].any()):
        return None
    own = own[own["task"].isin(own.loc[own["trained"], "task"])]  # the others were only tuned from scratch
    whole = with_average(own)
    plainly = estimated(whole, SCORED, scale_of)
    data = names_of(against_shuffled(plainly, scores, SCORED, scale_of), models)
    tasks, summary = tasks_of(own), tasks_of(whole)[-1]
    mean = f"mean over {len(tasks)} tasks"
    title = mean if summary == AVERAGE else _heading(data, summary, " labelled examples")
    chart = Panel(spec=_chart(of(data, task=summary), models), title=title)
    return ReportFigure(
        id="tuned-scores",
        question="Which pretraining is best for which task?",
        answer=[*_best(own, tasks, models), *_from_scratch(own)],
        panels=[chart],
        caption=f"{bands(plainly)} Tuned: {way_of(scores)}; most labelled examples.",
        how_to_read=_how_to_read(data, models),
        method=SCORES,
        data=data,
        tables=(TASK_SCORES.name,),
        findings=tuple(f"adaptation:A-{number}" for number in (7, 8, 9, 10)),
        template="scores.html.jinja",
        payload={"apart": True, "columns": [_heading(data, task) for task in tasks_of(whole)]}
        | {"rows": [*_systems(data, whole, models), *_controls(data, tasks_of(whole))]},
    )


def _heading(data: pd.DataFrame, task: str, what: str = "") -> str:
    return task if task == AVERAGE else f"{task} ({int(of(data, task=task)['examples'].max()):,}{what})"


def _systems(data: pd.DataFrame, own: pd.DataFrame, models: ModelSelection) -> list[dict[str, Any]]:
    """One row per line; for each task, the best score and those that do not clearly differ from it are bold."""
    trained, best = of(data, group="trained"), {task: _leaders(own, task, models) for task in tasks_of(own)}
    return [
        _row(one.label, [_cell(of(trained, series=one.key, task=task), one in best[task]) for task in best], one.slot)
        for one in models.present(trained)
    ]


def _controls(data: pd.DataFrame, tasks: Sequence[str]) -> list[dict[str, Any]]:
    """One row of means over lines for each control and for the best guess."""
    found = [(name, of(data, group=group), "value") for group, (name, *_) in _CONTROLS.items()]
    found.append((_GUESS, of(data, group="trained"), "baseline"))
    return [
        _row(name, [_mean_cell(of(rows, task=task)[of_what]) for task in tasks])
        for name, rows, of_what in found
        if len(rows)
    ]


def _row(label: str, cells: list[dict[str, Any]], slot: int | None = None, more: str = "") -> dict[str, Any]:
    """A row of a table of scores; without a `slot` it is a control."""
    return {"label": label, "slot": slot, "more": more, "cells": cells}


def _cell(rows: pd.DataFrame, best: bool = False) -> dict[str, Any]:
    ends = rows[["low", "high"]].dropna().head(1).to_numpy().ravel()
    return _mean_cell(rows["value"].head(1)) | {"interval": " to ".join(number(end, 2) for end in ends), "best": best}


def _mean_cell(values: pd.Series) -> dict[str, Any]:
    """The mean, or a dash if there are no values."""
    return {"value": number(float(values.mean()), 2), "interval": "", "best": False}


def _how_to_read(data: pd.DataFrame, models: ModelSelection) -> list[str]:
    row = "a pretraining objective" if models.by == "objective" else "a model"
    clauses = [
        f"Each row is {row}. Across: the task's main metric on test examples; 1 is best. The dashed tick is the best "
        "guess without a model; it would be surprising if a tuned model were not above it.",
    ]
    if "untrained" in set(data["group"]):
        clauses.append(
            "The grey cross is the same model tuned from random weights on the same examples, so the distance between "
            "cross and mark is the gain from pretraining."
            + " It would be surprising if crosses differed much between rows of one architecture, since their models "
            "differ only in whether they attend to later words." * (data["series"].nunique() > 1)
        )
    if SHUFFLED in set(data["group"]):
        clauses.append(
            "The grey triangle is the pretrained model tuned on shuffled labels: there is nothing to learn, so it "
            "should be no better than the guess. How far a mark lies above it is what the labels taught."
        )
    if len(clauses) == 1:
        clauses.append("No control was tuned, neither from random weights nor on shuffled labels.")
    bold = "Bold in the table: the best score on a task, and scores that do not clearly differ from it. "
    return [*clauses, f"{bold}Grey rows are means over the rows above. After each task: number of labelled examples."]


def _chart(rows: pd.DataFrame, models: ModelSelection) -> dict[str, Any]:
    rows = rows.assign(label=rows["name"])
    trained, grey = rows[rows["group"] == "trained"], rows[rows["group"] != "trained"]
    controls = {group: control for group, control in _CONTROLS.items() if group in set(grey["group"])}
    looks = pd.DataFrame([controls[group] for group in grey["group"]], grey.index, ["control", "shape", "mark"])
    names = [(mark, name, "var(--control)") for name, _, mark in controls.values()]
    series, noun = models.present(trained), "pretrained for" if models.by == "objective" else "model"
    return interval_dots(
        trained.assign(short=[number(value, 2) for value in trained["value"]]),
        {"color": color_of(series), "shape": shape_of(series)},
        title="score (1: the best)",
        tooltip=tips(f"label:N|{noun}", "shown:N|score", "baseline:Q|best guess|.2f"),
        step=32,
        grey=grey.assign(control=looks["control"], shape=looks["shape"]),
        legend=[*names, ("┆", _GUESS, "var(--control)")] if names else None,
    )


def _leaders(own: pd.DataFrame, task: str, models: ModelSelection) -> dict[Series, Estimate]:
    """The line with the highest score on a task, and those that do not clearly differ from it, with their scores."""
    rows = of(own, task=task, trained=True)
    samples = {one: Samples.of(of(rows, series=one.key)) for one in models.present(rows)}
    if not samples:
        return {}
    best = max(samples, key=lambda one: samples[one].estimate().value)
    alike = [one for one in samples if one != best and not (samples[best] - samples[one]).estimate().sign]
    return {one: samples[one].estimate() for one in (best, *alike)}


def _best(own: pd.DataFrame, tasks: list[str], models: ModelSelection) -> list[str]:
    """Each task's highest score and the lines that do not clearly differ from it; with one line, its score."""
    clauses = []
    several = own.loc[own["trained"], "series"].nunique() > 1
    for task in tasks[:_DESCRIBED]:
        (best, score), *alike = _leaders(own, task, models).items()
        others = f" (no clear difference: {listed([one.label for one, _ in alike])})" if alike else ""
        clauses.append(f"On {task}, {best.label} {'is best,' if several else 'has'} {estimate_text(score)}{others}.")
    return clauses


def _from_scratch(own: pd.DataFrame) -> list[str]:
    """Smallest and largest gain from pretraining over lines, for tasks that were also tuned from scratch."""
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
        f"Over tuning from scratch, pretraining gains between {estimate_text(ends[0])} and "
        f"{estimate_text(ends[-1])}, means over tasks."
    ]


_BY = ["strategy", "method"]
_MOST = 8  # maximum number of models with a panel


def ways_figure(scores: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per line that was tuned in several combinations of strategy and method; None if there is none."""
    own = most_examples(scores[(scores["control"] == "") & scores["trained"]])
    own = _same_tasks(own)
    counts = own.groupby("series")[_BY].apply(lambda rows: len(rows.drop_duplicates())) if len(own) else pd.Series()
    own = own[own["series"].isin(counts[counts > 1].index)] if len(counts) else own
    if own.empty:
        return None
    means = averaged(own, _BY)
    of_tasks = averaged(own, [*_BY, "task", "metric"])
    data = pd.concat(
        [
            estimated(of_tasks, [*_BY, "task", "metric"], scale_of),
            estimated(means, _BY).assign(task=AVERAGE, metric=""),
        ],
        ignore_index=True,
    )
    ends = of(data, task=AVERAGE)
    series = models.present(data)[:_MOST]
    return ReportFigure(
        id="tuned-ways",
        question="Frozen or tuned, general or in the domain?",
        answer=[text for one in series for text in _sentences(of(means, series=one.key), one.label)],
        panels=[Panel(spec=_way_chart(of(ends, series=one.key), models), title=one.label) for one in series],
        caption=f"{bands(ends)} Means over the tasks for which a model was tuned by all of its methods, with most "
        f"labelled examples.{_further(models.present(data))}",
        how_to_read=[
            "Each row says on which text the model was pretrained, and which of its parts were trained on the labels. "
            "Across: mean over tasks of their main metrics on test examples. The dashed tick is the best guess "
            "without a model. The table has each task.",
            "Frozen features show what pretraining already provides; what tuning all weights adds is due to tuning the "
            "body. It would be surprising if frozen features won, since they are a special case of tuning.",
        ],
        method=SCORES,
        data=data,
        tables=(TASK_SCORES.name,),
        findings=tuple(f"adaptation:A-{number}" for number in (2, 3, 4)),
        template="scores.html.jinja",
        payload={"layout": "wide", "apart": True, "columns": tasks_of(data), "rows": _way_rows(data, models)},
    )


def _way_rows(data: pd.DataFrame, models: ModelSelection) -> list[dict[str, Any]]:
    """One row per line and combination of strategy and method, and one for the best guess."""
    tasks = tasks_of(data)
    rows = [
        _row(one.label, [_cell(of(own, task=task)) for task in tasks], one.slot, way_label(*pair))
        for one in models.present(data)
        for pair, own in _in_order(of(data, series=one.key))
    ]
    return [*rows, _row(_GUESS, [_mean_cell(of(data, task=task)["baseline"]) for task in tasks])]


def _in_order(rows: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    orders = (list(STRATEGIES), list(METHODS)[::-1])
    ways: Any = rows.groupby(_BY, sort=False)
    found = {(str(strategy), str(method)): own for (strategy, method), own in ways}

    def place(pair: tuple[str, str]) -> tuple[int, ...]:
        return tuple(
            order.index(name) if name in order else len(order) for name, order in zip(pair, orders, strict=True)
        )

    return sorted(found.items(), key=lambda item: place(item[0]))


def _further(series: list[Series]) -> str:
    names = [one.label for one in series[_MOST:]]
    return f" Only in the data: {listed(names)}." if names else ""


def _same_tasks(own: pd.DataFrame) -> pd.DataFrame:
    """Each line's tasks that were tuned in every one of its combinations of strategy and method."""
    parts = []
    for _, rows in own.groupby("series", sort=False):
        ways = [set(part["task"]) for _, part in rows.groupby(_BY, sort=False)]
        parts.append(rows[rows["task"].isin(set.intersection(*ways))])
    return pd.concat(parts) if parts else own


def way_label(strategy: str, method: str) -> str:
    return f"{STRATEGIES.get(strategy, strategy)}: {METHODS.get(method, method)}"


def _way_chart(rows: pd.DataFrame, models: ModelSelection) -> dict[str, Any]:
    ordered = pd.concat([own.assign(label=way_label(*pair)) for pair, own in _in_order(rows)])
    return interval_dots(
        ordered.assign(short=[number(value, 2) for value in ordered["value"]]),
        {"color": color_of(models.present(rows))},
        title="score, mean over tasks",
        tooltip=tips("label:N|method", "shown:N|score"),
        step=30,
    )


def _sentences(rows: pd.DataFrame, name: str) -> list[str]:
    found = {
        (strategy, method): Samples.of(own)
        for (strategy, method), own in rows.groupby(_BY, sort=False)  # type: ignore[misc]
    }
    clauses, gains = [], []
    for strategy in dict.fromkeys(pair[0] for pair in found):
        both = [found.get((strategy, method)) for method in (FULL, FROZEN)]
        if both[0] and both[1]:
            domain = f" ({STRATEGIES.get(strategy, strategy)})" if strategy != AS_IS else ""
            gains.append(f"{estimate_text((both[0] - both[1]).estimate())}{domain}")
    if gains:
        clauses.append(f"the gain of tuning all weights over frozen features is {listed(gains)}")
    general = found.get((AS_IS, FULL))
    for strategy in [one for one in STRATEGIES if one != AS_IS]:
        if general and (domain := found.get((strategy, FULL))):
            gap = estimate_text((domain - general).estimate())
            clauses.append(
                f"with all weights tuned, “{STRATEGIES[strategy]}” differs from “{STRATEGIES[AS_IS]}” by {gap}"
            )
    for (strategy, method), own in found.items():
        if general and strategy == AS_IS and method not in (FULL, FROZEN):
            gap = estimate_text((own - general).estimate())
            clauses.append(f"“{METHODS.get(method, method)}” differs from “{METHODS[FULL]}” by {gap}")
    return [f"In {name}, {'; '.join(clauses)}."] if clauses else []
