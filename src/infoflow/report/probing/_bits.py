"""How hard a task is to read: the bits that its labels take once a layer's vectors are known."""

from collections.abc import Iterable

import pandas as pd

from .._curves import interval_note, samples_at
from .._figure import Panel, ReportFigure
from .._numbers import estimate_text, listed, number
from .._samples import Estimate
from .._series import Series
from .._shown_models import ShownModels
from ..forms._layer_chart import LayerChart
from ..forms._lines import POSITIVE, SHARE
from ._methods import CODELENGTH
from ._rows import (
    CONTROL_TASK,
    SHUFFLED,
    alike_text,
    any_trained,
    best_layer,
    curves_with,
    left_out_note,
    most_layered,
    of,
    one_probe,
    probe_label,
    ratio,
    sentence_start,
    task_label,
    tasks_of,
    times,
)
from ._words import Case, cases_of, told_of

CODES = ("online", "variational")
_CONTROLS = {"control": CONTROL_TASK, "shuffled": SHUFFLED}
_TOLD = 4  # tasks that have a sentence of their own
MOST_CODED = 6  # tasks with panels
_METRICS = {
    "compression": ("compression (times shorter)", "uniform code", POSITIVE),
    "accuracy": ("accuracy of the same probe", "majority class", SHARE),
}
_LEVEL = 0.02  # a difference of accuracy that says nothing


def bits_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """Compression over layers, and beside it the accuracy of the same probe; None without either."""
    every = one_probe(in_bits(frame))
    code = next((name for name in CODES if len(of(every, code=name, labels="task", metric="compression"))), "")
    rows = of(every, code=code)
    own = of(rows, labels="task", metric="compression")
    if not any_trained(own):
        return None
    tasks = tasks_of(own)
    shown = most_layered(own, tasks, MOST_CODED)
    tables = {(task, metric): coded_table(of(rows, metric=metric), task) for task in tasks for metric in _METRICS}
    tables = {key: table for key, table in tables.items() if len(table)}
    data = pd.concat([table.assign(task=t, metric=m, code=code) for (t, m), table in tables.items()], ignore_index=True)
    return ReportFigure(
        id="probe-bits",
        question="How hard is each task to read?",
        answer=[
            *(_task_sentence(of(rows, metric="compression", task=task), task, models) for task in shown[:_TOLD]),
            *_beside_accuracy(rows, shown),
            *_codes_agree(of(every, metric="compression"), code, models),
        ],
        words=_words(own, of(rows, labels="control", metric="compression"), models),
        panels=[
            Panel.of(coded_chart(table, models, *_METRICS[metric]), f"{task_label(task)}: {metric}")
            for (task, metric), table in tables.items()
            if task in shown
        ],
        caption=f"{interval_note(data)} {_how_coded(own, code)} Each panel has its own scale."
        f"{left_out_note(tasks, shown)}",
        how_to_read=[
            "Compression: how many times shorter the labels are for someone who has this layer's vectors than for "
            "someone who knows nothing but how many classes there are. Higher is easier: fewer bits in all, for the "
            "labels and for the probe that reads them.",
            "Accuracy asks whether a probe gets there in the end; bits also count how many examples, or how large a "
            "probe, it took. So a task may be learned as well as its control in accuracy, and be far cheaper in bits.",
            "Grey: the control task (every type of word has one label by chance), labels shuffled over all examples, "
            "and, dashed, a model that was never trained. Shuffled labels cannot be compressed: their line lies at 1 "
            "or slightly below, and above it something would be wrong.",
        ],
        method=CODELENGTH,
        data=data,
        tables=("probe_codelength",),
        findings=tuple(f"probing:M-{n}" for n in range(1, 6)),
        payload={"apart": True, "layout": "wide"},
    )


def _words(own: pd.DataFrame, control: pd.DataFrame, models: ShownModels) -> str:
    """How many times shorter labels are than the control's in the same layer; else than without vectors."""
    cases = cases_of(own, models)

    def over_control(case: Case) -> Estimate | None:
        beside = samples_at(of(control, task=case.task), case.series.key, case.best.layer)
        return ratio(case.samples, beside) if beside else None

    told = told_of("compression, as a multiple of the control task's in the same layer,", cases, over_control, 1.0)
    return told or told_of("compression at its best layer", cases, lambda case: case.best.estimate, 1.0)


def in_bits(frame: pd.DataFrame) -> pd.DataFrame:
    """Without lengths in mixed units, where there are others."""
    if "units" not in frame or not bool((frame["units"].astype(str) == "bits").any()):
        return frame
    return frame[frame["units"].astype(str) == "bits"]


def coded_table(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """The curves of a task, with its control and shuffled labels; none where it was not measured."""
    of_task = of(rows, task=task)
    own = of(of_task, labels="task")
    if len(own) and bool((of_task["labels"].astype(str) == "shuffled").any()):
        own = own.assign(baseline=own["baseline"].where(own["metric"].astype(str) != "compression"))
    return curves_with(own, {name: of(of_task, labels=labels) for labels, name in _CONTROLS.items()})


def coded_chart(
    table: pd.DataFrame, models: ShownModels, title: str, baseline: str, bounds: tuple[float, float] = POSITIVE
) -> LayerChart:
    series = models.present(table[table["group"] == "trained"])
    how = {"baseline_name": baseline, "bounds": bounds, "controls": tuple(_CONTROLS.values())}
    return LayerChart(table=table, series=series, y_title=title, **how)


def _how_coded(own: pd.DataFrame, code: str) -> str:
    probes = listed([probe_label(name) for name in dict.fromkeys(own["probe"].astype(str))])
    units = " Units are mixed, as in the reference's code." if "mixed" in set(own.get("units", pd.Series())) else ""
    return f"The {code} code of {probes} probes.{units}"


def _task_sentence(rows: pd.DataFrame, task: str, models: ShownModels) -> str:
    """The layer from which labels are shortest, beside the embeddings, the control and an untrained model."""
    own, control = of(rows, labels="task"), of(rows, labels="control")
    lines = models.present(own[own["trained"]])
    found = {one: best for one in lines if (best := best_layer(own, one.key)) is not None}
    series, best = max(found.items(), key=lambda one: one[1].estimate.value)
    here = samples_at(own, series.key, best.layer)
    told = [times(ratio(here, samples_at(own, series.key, 0)), "its embeddings")] if best.layer else []
    if beside := samples_at(control, series.key, best.layer):
        told.append(times(ratio(here, beside), "the control task"))
    if other := best_layer(own, series.key, trained=False):
        grey = samples_at(own, series.key, other.layer, trained=False)
        told.append(times(ratio(here, grey), f"an untrained model's best layer ({other.layer})"))
    shorter = f"labels are {estimate_text(best.estimate)} times shorter than without vectors"
    place = f"in layer {best.layer} of {series.label}{alike_text(best)}"
    return f"{sentence_start(task_label(task))}: {shorter} {place}{f', {listed(told)}' if told else ''}."


def _beside_accuracy(rows: pd.DataFrame, tasks: Iterable[str]) -> list[str]:
    """Where accuracy hardly tells a task from its control, or puts the control first, and bits do."""
    told = []
    for task in tasks:
        (own, control), (bits, more) = (_at_embeddings(rows, task, metric) for metric in ("accuracy", "bits"))
        if own - control < _LEVEL and more > bits:  # false of what was not measured
            how = "lower" if control - own > _LEVEL else "as high"
            told.append(
                f"on {task_label(task)} accuracy is {how} ({number(own, 2)} and {number(control, 2)}) while the "
                f"control takes {number(more / bits, 2)} times the bits"
            )
    return [f"From the embeddings, beside the control task: {'; '.join(told)}."] if told else []


def _at_embeddings(rows: pd.DataFrame, task: str, metric: str) -> tuple[float, float]:
    """Of the task and of its control at layer 0, means over trained models; NaN where there is none."""
    first = of(rows[(rows["layer"] == 0) & rows["trained"]], task=task, metric=metric)
    own, control = (of(first, labels=labels)["value"].mean() for labels in ("task", "control"))
    return float(own), float(control)


def _codes_agree(every: pd.DataFrame, code: str, models: ShownModels) -> list[str]:
    """In how many cases the other code is shortest at the same layer."""
    other = next((name for name in CODES if name != code and len(of(every, code=name, labels="task"))), "")
    if not other:
        return []
    same, near, cases = 0, 0, 0
    for task in tasks_of(every):
        rows = [of(every, task=task, code=name, labels="task") for name in (code, other)]
        for series in _both(rows, models):
            first, second = (best_layer(each, series.key) for each in rows)
            if first is not None and second is not None:
                cases += 1
                same += first.layer == second.layer
                near += abs(first.layer - second.layer) == 1
    beside = f", and a neighbour of it in {near}" if near else ""
    return [f"The {other} code is shortest at the same layer in {same} of {cases} cases{beside}."] if cases else []


def _both(rows: list[pd.DataFrame], models: ShownModels) -> list[Series]:
    keys = [{one.key for one in models.present(each[each["trained"]])} for each in rows]
    return [one for one in models.series if all(one.key in own for own in keys)]
