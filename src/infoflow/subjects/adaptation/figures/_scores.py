"""Scores of each pretrained model after tuning: by task, by tuning method and by pretraining."""

from typing import Any

import pandas as pd

from infoflow.report._declared import DeclaredFigure, Drawn
from infoflow.report._figure import Panel
from infoflow.report._numbers import estimate_text, listed, number
from infoflow.report._samples import Samples
from infoflow.report._series import Series
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import color_of, shape_of, tips
from infoflow.report.forms._dots import interval_dots
from infoflow.results import scale_of

from ..measures import TASK_SCORES
from . import _methods
from ._rows import (
    AS_IS,
    FROM_SCRATCH,
    FROZEN,
    FULL,
    METHODS,
    MOST_TASKS,
    SCORED,
    SHUFFLED,
    STRATEGIES,
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

_WITHIN = {
    "pretraining": "the pretraining corpus",
    "domain": "the domain's corpus",
    "train": "the task's own training part",
}


def leaks(frame: pd.DataFrame) -> list[str]:
    """One sentence per task and corpus that share test texts; empty if none do."""
    own = frame[(frame["same"] > 0) | (frame["near"] > 0)].drop_duplicates(["task", "within"])
    return [_sentence(row) for row in own.to_dict("records")]


def _sentence(row: dict) -> str:
    same, near, texts = (int(row[name]) for name in ("same", "near", "texts"))
    where = _WITHIN.get(str(row["within"]), str(row["within"]))
    apart = near - same  # identical texts count as near, too
    parts = [f"{same:,} stand in {where}"] if same else []
    parts += [f"{apart:,} {'more ' if same else ''}are one word apart from a text of {where}"] if apart else []
    return f"{row['task']}: of {texts:,} test texts {' and '.join(parts)}."


_TOLD = 6
_CONTROLS = {"untrained": (FROM_SCRATCH, "cross", "✚"), SHUFFLED: (SHUFFLED, "triangle-down", "▼")}
"""Group of rows → the control's name, its mark, and its mark in the legend."""


def _scores(scores: pd.DataFrame, models: ShownModels) -> Drawn | None:
    """One panel per task; None if nothing was fully tuned."""
    own = averaged(most_examples(plain(scores)), SCORED)
    if not bool(own["trained"].any()):
        return None
    own = own[own["task"].isin(own.loc[own["trained"], "task"])]  # the others were only tuned from scratch
    plainly = estimated(own, SCORED, scale_of)
    data = names_of(beside_shuffled(plainly, scores, SCORED, scale_of), models)
    tasks, tuned = tasks_of(data), set(data["group"]) & set(_CONTROLS) or {"none"}
    return Drawn(
        data=data,
        answer=[*_best(own, tasks, models), *_from_scratch(own)],
        panels=[
            Panel(spec=_chart(of(data, task=task), models), title=_title(data, task)) for task in tasks[:MOST_TASKS]
        ],
        caption=f"{bands(plainly)} Tuned: {way_of(scores)}; most labelled examples.{left_out(tasks)}",
        facts={
            "row": "an objective of pretraining" if models.by == "objective" else "a model",
            **{name: text * (name in tuned) for name, text in _GUIDE.items()},
            "crosses": _CROSSES * (data["series"].nunique() > 1),
        },
    )


_GUIDE = {
    "untrained": "The grey cross is the same model tuned from random weights, on the same examples: what lies between "
    "cross and mark is what pretraining gained.{crosses}",
    SHUFFLED: "The grey triangle is the pretrained model tuned on labels that changed places: there is nothing to "
    "learn, so it should be no better than the guess. What a mark has above it comes from the labels.",
    "none": "No control was tuned: neither from random weights nor on other labels.",
}
"""The reading guide for each control, and for none."""
_CROSSES = (
    " It would be surprising if crosses differed much between rows of one architecture: their models differ in nothing "
    "but whether they may look ahead."
)


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
    """Each task's highest score and the lines that do not clearly differ from it; with one line, its score."""
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
        f"Over tuning from scratch, pretraining gains least {estimate_text(ends[0])} and most "
        f"{estimate_text(ends[-1])}, means over tasks."
    ]


_BY = ["strategy", "method"]
_MOST = 8  # models with a panel


def _ways(scores: pd.DataFrame, models: ShownModels) -> Drawn | None:
    """One panel per line that was tuned in several combinations of strategy and method; None if there is none."""
    own = _same_tasks(most_examples(scores[(scores["control"] == "") & scores["trained"]]))
    counts = own.groupby("series")[_BY].apply(lambda rows: len(rows.drop_duplicates())) if len(own) else pd.Series()
    own = own[own["series"].isin(counts[counts > 1].index)] if len(counts) else own
    if own.empty:
        return None
    means = averaged(own, _BY)
    data = estimated(means, _BY)
    series = models.present(data)[:_MOST]
    return Drawn(
        data=data,
        answer=[text for one in series for text in _sentences(of(means, series=one.key), one.label)],
        panels=[Panel(spec=_way_chart(of(data, series=one.key), models), title=one.label) for one in series],
        caption=f"{bands(data)} Each model's mean over the tasks that it was tuned for in all of these ways, most "
        f"labelled examples.{_further(models.present(data))}",
    )


def _further(series: list[Series]) -> str:
    """The caption's note about models without a panel."""
    names = [one.label for one in series[_MOST:]]
    return f" In the data, too: {listed(names)}." if names else ""


def _same_tasks(own: pd.DataFrame) -> pd.DataFrame:
    """Each line's tasks that were tuned in every one of its combinations of strategy and method."""
    parts = []
    for _, rows in own.groupby("series", sort=False):
        ways = [set(part["task"]) for _, part in rows.groupby(_BY, sort=False)]
        parts.append(rows[rows["task"].isin(set.intersection(*ways))])
    return pd.concat(parts) if parts else own


def way_label(strategy: str, method: str) -> str:
    return f"{STRATEGIES.get(strategy, strategy)}: {METHODS.get(method, method)}"


def _way_chart(rows: pd.DataFrame, models: ShownModels) -> dict[str, Any]:
    orders = (list(STRATEGIES), list(METHODS)[::-1])
    places = [
        tuple(order.index(name) if name in order else len(order) for name, order in zip(pair, orders, strict=True))
        for pair in rows[_BY].astype(str).itertuples(index=False, name=None)
    ]
    ordered = rows.assign(place=places).sort_values("place")
    labels = [way_label(*pair) for pair in ordered[_BY].astype(str).itertuples(index=False, name=None)]
    return interval_dots(
        ordered.drop(columns="place").assign(label=labels, short=[number(value, 2) for value in ordered["value"]]),
        {"color": color_of(models.present(rows))},
        title="score, mean over tasks",
        tooltip=tips("label:N|way", "shown:N|score"),
        step=30,
    )


def _sentences(rows: pd.DataFrame, name: str) -> list[str]:
    found = {
        (strategy, method): Samples.of(own)
        for (strategy, method), own in rows.groupby(_BY, sort=False)  # type: ignore[misc]
    }
    told, gains = [], []
    for strategy in dict.fromkeys(pair[0] for pair in found):
        both = [found.get((strategy, method)) for method in (FULL, FROZEN)]
        if both[0] and both[1]:
            domain = f" ({STRATEGIES.get(strategy, strategy)})" if strategy != AS_IS else ""
            gains.append(f"{estimate_text((both[0] - both[1]).estimate())}{domain}")
    if gains:
        told.append(f"tuning all weights gains over frozen features {listed(gains)}")
    general = found.get((AS_IS, FULL))
    for strategy in [one for one in STRATEGIES if one != AS_IS]:
        if general and (domain := found.get((strategy, FULL))):
            gap = estimate_text((domain - general).estimate())
            told.append(f"all weights tuned, “{STRATEGIES[strategy]}” differs from “{STRATEGIES[AS_IS]}” by {gap}")
    for (strategy, method), own in found.items():
        if general and strategy == AS_IS and method not in (FULL, FROZEN):
            gap = estimate_text((own - general).estimate())
            told.append(f"“{METHODS.get(method, method)}” differs from “{METHODS[FULL]}” by {gap}")
    return [f"In {name}, {'; '.join(told)}."] if told else []


SCORES = DeclaredFigure(
    name="adaptation/scores",
    id="tuned-scores",
    question="Which pretraining serves which task?",
    how_to_read=(
        "A row is {row}, across is the task's main metric on test examples, 1 the best. The dashed tick is the best "
        "guess without a model; it would be surprising if a tuned model were not above it.",
        *(f"{{{name}}}" for name in _GUIDE),
    ),
    method=_methods.SCORES,
    tables=(TASK_SCORES.name,),
    findings=tuple(f"adaptation:A-{number}" for number in (7, 8, 9, 10)),
    payload={"apart": True},
    draw=_scores,
)
WAYS = DeclaredFigure(
    name="adaptation/methods",
    id="tuned-ways",
    question="Frozen or tuned, general or in the domain?",
    how_to_read=(
        "A row is a way to a model of the task: which text it was pretrained on, and what of it was trained on the "
        "labels. Across: mean over tasks of their main metrics on test examples. The dashed tick is the best guess "
        "without a model.",
        "Frozen features show what pretraining has put there already; what all weights add is what tuning moved. "
        "It would be surprising if frozen features won: they are a special case.",
    ),
    method=_methods.SCORES,
    tables=(TASK_SCORES.name,),
    findings=tuple(f"adaptation:A-{number}" for number in (2, 3, 4)),
    payload={"layout": "wide", "apart": True},
    draw=_ways,
)
