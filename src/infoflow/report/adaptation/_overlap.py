"""Whether the heads that matter for one task matter for the others."""

from itertools import combinations

import numpy as np
import pandas as pd

from infoflow.adaptation import head_overlap

from .._figure import Panel, ReportFigure
from .._numbers import number
from .._shown_models import ShownModels
from ._methods import HEADS
from ._rows import bands, estimated, most_examples, of, plain, tasks_of
from ._squares import square_chart

MEASURES = {"spearman": "rank correlation over all heads", "jaccard": "overlap of the most important quarter"}


def overlap_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for each line, tasks by tasks, a set for each measure; None where heads of one task alone are known."""
    own = most_examples(plain(frame))
    own = own[own["trained"]]
    data = _agreement(own)
    if data.empty:
        return None
    series, tasks = models.present(data), tasks_of(own)
    rows = data.assign(
        label=data["task_a"],
        other=data["task_b"],
        order=data["task_b"].map({name: place for place, name in enumerate(tasks)}),
        set=data["measure"].map({name: place for place, name in enumerate(MEASURES)}),
        text=[number(value, 2) for value in data["value"]],
        shown=[
            f"{told}; of unrelated tasks {number(chance, 2)}"
            for told, chance in zip(data["shown"], data["baseline"], strict=True)
        ],
    ).sort_values("order", kind="stable")
    how = {"across": "other", "labels": tasks, "title": "other task", "told": "agreement"}
    how |= {"strongest": 1.0, "signed": True}
    return ReportFigure(
        id="head-overlap",
        question="Do tasks need the same heads?",
        answer=[_sentence(of(data, series=one.key), one.label) for one in series],
        panels=[Panel(spec=square_chart(of(rows, series=one.key), **how), title=one.label) for one in series],
        caption=f"{bands(data, 'heads')} Colours and numbers: how far two tasks agree about what each head is worth, "
        "which is what the task's loss rises by without it. 1: all the same; 0 or below: nothing in common.",
        how_to_read=[
            "Rows and columns are tasks. Choose above the picture whether all heads count, by their order, or how many "
            "of the most important quarter two tasks share (of two random quarters a seventh of those in either).",
            "Agreement is bounded by how well a head's worth is known from so few test examples: what A-12 tells "
            "counts that. It would be surprising if tasks needed quite different heads of one pretrained model.",
        ],
        method=HEADS,
        data=data,
        tables=("tuning_heads",),
        findings=("adaptation:A-12",),
        template="evaluated.html.jinja",
        payload={"sets": list(MEASURES.values()), "layout": "wide", "apart": True},
    )


def _agreement(own: pd.DataFrame) -> pd.DataFrame:
    """Of each line and pair of tasks, in either order, `head_overlap`, its mean over seeds with an interval."""
    parts = []
    for values, heads in own.groupby(["series", "seed"], sort=False):
        keys = dict(zip(("series", "seed"), values, strict=True))
        by_task = {str(task): of_task for task, of_task in heads.groupby("task", sort=False)}
        known = {task: of_task for task, of_task in by_task.items() if bool(of_task["value"].notna().all())}
        parts += [found.assign(**keys) for found in _of_same_heads(known)]
    if not parts:
        return pd.DataFrame()
    every = pd.concat(parts, ignore_index=True)
    means = estimated(every.dropna(subset="value").assign(trained=True), ["task_a", "task_b", "measure"])
    turned = means.rename(columns={"task_a": "task_b", "task_b": "task_a"})
    return pd.concat([means, turned], ignore_index=True)


def _of_same_heads(tables: dict[str, pd.DataFrame]) -> list[pd.DataFrame]:
    """Of every two tasks that were tuned in the same part of the model."""
    found = []
    for (a, first), (b, second) in combinations(sorted(tables.items()), 2):
        if len(first) == len(second) and set(first["stack"]) == set(second["stack"]):
            found.append(head_overlap({a: first, b: second}))
    return found


def _sentence(data: pd.DataFrame, name: str) -> str:
    """Means over pairs of tasks."""
    told = []
    for measure, words in MEASURES.items():
        rows = of(data, measure=measure)
        if len(rows):
            chance = float(np.mean(rows["baseline"]))
            told.append(f"{words} {number(float(np.mean(rows['value'])), 2)} (of unrelated tasks {number(chance, 2)})")
    return f"In {name}, over pairs of tasks: {', '.join(told)}."
