"""How far a task lies above its control: what a probe reads, and what it could have learned by heart."""

import pandas as pd

from .._curves import curves, interval_note, samples_at
from .._figure import Panel, ReportFigure
from .._numbers import number
from .._series import Series
from .._shown_models import ShownModels
from ..forms._layer_chart import LayerChart
from ..forms._lines import COSINE
from ._methods import PROBES
from ._rows import (
    against,
    all_examples,
    any_trained,
    best_layer,
    control_curve,
    left_out_note,
    most_layered,
    of,
    one_probe,
    task_label,
    tasks_of,
)
from ._words import cases_of, told_of

_TOLD = 5  # tasks whose seen and unseen types are told apart in words


def selectivity_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """How far a task lies above its control, with types of words that training had and that it had not; or None."""
    scores = all_examples(one_probe(of(frame, metric="selectivity")))
    own = of(scores, words="all")
    if not any_trained(own):
        return None
    tasks = tasks_of(own)
    shown = most_layered(own, tasks)
    control = all_examples(one_probe(of(frame, metric="accuracy", labels="control")))
    tables = {task: _table(of(scores, task=task)) for task in tasks}
    data = pd.concat([table.assign(task=task) for task, table in tables.items()], ignore_index=True)
    how = {"y_title": "selectivity (accuracy less control)", "bounds": COSINE, "baseline_name": "as the control"}
    charts = {
        task: LayerChart(table=tables[task].query("words == 'all'"), series=_lines(tables[task], models), **how)
        for task in shown
    }
    return ReportFigure(
        id="probe-selectivity",
        question="Is it in the vectors, or has the probe learned words by heart?",
        answer=[*_layer_sentences(own, shown, models), *_type_sentences(scores, control, shown, models)],
        words=told_of("selectivity at its best layer", cases_of(own, models), lambda case: case.best.estimate, 0.0),
        panels=[Panel.of(chart, task_label(task)) for task, chart in charts.items()],
        caption=f"{interval_note(data)} Each panel has its own scale; words of types that training had and had not are "
        f"apart under the pointer and in the data.{left_out_note(tasks, shown)}",
        how_to_read=[
            "Up: accuracy on the task less accuracy on its control, in which each type of word has one label by "
            "chance. A probe with enough weights learns both; selectivity counts only what it could not have learned "
            "from the word alone. The dotted line is no better than the control.",
            "Embeddings tell words apart best, so layer 0 is where control tasks are easiest. Negative: the control "
            "task is the easier one.",
        ],
        method=PROBES,
        data=data,
        tables=("probe_scores",),
        findings=("probing:P-1",),
    )


def _lines(table: pd.DataFrame, models: ShownModels) -> list[Series]:
    return models.present(table[table["group"] == "trained"])


def _table(scores: pd.DataFrame) -> pd.DataFrame:
    """Curves of all words, which tell under the pointer of seen and unseen types, and the curves of these."""
    words = [name for name in ("all", "seen", "unseen") if name in set(scores["words"].astype(str))]
    tables = {name: curves(of(scores, words=name).assign(baseline=0.0)) for name in words}
    keys = ["series", "group", "layer"]
    every = tables["all"]
    for name in words[1:]:
        told = every[keys].merge(tables[name][[*keys, "shown"]], on=keys, how="left")["shown"]
        beside = told.map(lambda text, name=name: f"; {name} types {text}" if isinstance(text, str) else "")
        every = every.assign(shown=[a + b for a, b in zip(every["shown"], beside, strict=True)])
    parts = [(every if name == "all" else tables[name]).assign(words=name) for name in words]
    return pd.concat(parts, ignore_index=True)


def _layer_sentences(own: pd.DataFrame, tasks: list[str], models: ShownModels) -> list[str]:
    """In how many tasks and models the embeddings are less selective than the best layer above them."""
    lower, cases, most = 0, 0, []
    for task in tasks:
        rows = of(own, task=task)
        upper = rows[rows["layer"] > 0]
        for series in models.present(rows[rows["trained"]]):
            best, first = best_layer(upper, series.key), samples_at(rows, series.key, 0)
            if best is None or not first:
                continue
            gap = (samples_at(upper, series.key, best.layer) - first).estimate()
            cases, lower = cases + 1, lower + (gap.sign > 0)
            most.append((gap, task, series, best))
    if not most:
        return []
    gap, task, series, best = max(most, key=lambda one: one[0].value)
    return [
        f"Embeddings are clearly less selective than the best layer above them in {lower} of {cases} cases. The "
        f"difference is largest for {task_label(task)} in {series.label}, where layer {best.layer} is "
        f"{against(gap, 'layer 0')}."
    ]


def _type_sentences(scores: pd.DataFrame, control: pd.DataFrame, tasks: list[str], models: ShownModels) -> list[str]:
    """What selectivity and control accuracy are for words that training did not have."""
    parts = []
    for task in tasks[:_TOLD]:
        found = {}
        for words in ("seen", "unseen"):
            rows = of(scores, task=task, words=words)
            beside = control_curve(of(control, task=task, words=words), words)
            if len(rows[rows["trained"]]) and len(beside):
                found[words] = (control_curve(rows, words)["value"].mean(), beside["value"].mean())
        if len(found) == 2:
            (seen, by_heart), (unseen, chance) = found["seen"], found["unseen"]
            parts.append(
                f"{task_label(task)}: {number(seen, 2)} and {number(unseen, 2)} (control {number(by_heart, 2)} "
                f"and {number(chance, 2)})"
            )
    if not parts:
        return []
    return [f"Selectivity for types of words that training had and had not, over all layers: {'; '.join(parts)}."]
