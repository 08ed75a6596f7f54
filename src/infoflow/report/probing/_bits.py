"""How hard a task is to read: the bits that its labels take once a layer's vectors are known."""

import math
from collections.abc import Iterable

import pandas as pd

from .._curves import interval_note, samples_at
from .._figure import Figure, Panel
from .._language import Cast, Series
from .._numbers import estimate_text, listed, number
from ..forms._layer_chart import LayerChart
from ..forms._lines import POSITIVE
from ._methods import CODELENGTH
from ._rows import (
    CONTROL_TASK,
    SHUFFLED,
    alike_text,
    best_layer,
    control_curve,
    curves_with,
    left_out_note,
    most_layered,
    of,
    one_probe,
    ratio,
    sentence_start,
    task_label,
    tasks_of,
    times,
)

_CODES = ("online", "variational")
_CONTROLS = {"control": CONTROL_TASK, "shuffled": SHUFFLED}
_TOLD = 4  # tasks that have a sentence of their own
_LEVEL = 0.02  # a difference of accuracy that says nothing


def bits_figures(frame: pd.DataFrame, scores: pd.DataFrame | None, cast: Cast) -> list[Figure]:
    """Compression over layers, and the size of probes where it is known."""
    frame = one_probe(frame)
    return [
        figure for figure in (_compression_figure(frame, scores, cast), _size_figure(frame, cast)) if figure is not None
    ]


def _compression_figure(frame: pd.DataFrame, scores: pd.DataFrame | None, cast: Cast) -> Figure | None:
    every = of(frame, metric="compression")
    code = next((name for name in _CODES if len(of(every, code=name, labels="task"))), "")
    rows = of(every, code=code).assign(baseline=1.0)
    own = of(rows, labels="task")
    if own.empty or not own["trained"].any():
        return None
    tasks = tasks_of(own)
    shown = most_layered(own, tasks)
    tables = {task: _table(rows, task) for task in tasks}
    data = pd.concat([table.assign(task=task, code=code) for task, table in tables.items()], ignore_index=True)
    return Figure(
        id="probe-bits",
        question="How hard is each task to read?",
        answer=[
            *(_task_sentence(of(rows, task=task), task, cast) for task in shown[:_TOLD]),
            *_beside_accuracy(frame, code, scores, shown),
            *_codes_agree(every, code, cast),
        ],
        panels=[Panel.of(_chart(tables[task], cast), task_label(task)) for task in shown],
        caption=f"{interval_note(data)} The {code} code. Each panel has its own scale.{left_out_note(tasks, shown)}",
        how_to_read=[
            "Up: how many times shorter the labels are for someone who has this layer's vectors than for someone who "
            "knows nothing but how many classes there are. Higher is easier: fewer bits in all, for the labels and "
            "for the probe that reads them.",
            "Accuracy asks whether a probe gets there in the end; bits also count how many examples, or how large a "
            "probe, it took. So a task may be learned as well as its control in accuracy, and be far cheaper in bits.",
            "Grey: the control task (every type of word has one label by chance), labels shuffled over all examples, "
            "and a model that was never trained. Shuffled labels cannot be compressed: their line lies at 1 "
            "or slightly below, and above it something would be wrong.",
        ],
        method=CODELENGTH,
        data=data,
        tables=("probe_codelength",),
        findings=tuple(f"probing:M-{n}" for n in range(1, 6)),
        payload={"apart": True},
    )


def _table(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    of_task = of(rows, task=task)
    if bool((of_task["labels"].astype(str) == "shuffled").any()):
        of_task = of_task.assign(baseline=math.nan)  # their line says the same, and was measured
    return curves_with(
        of(of_task, labels="task"), {name: of(of_task, labels=labels) for labels, name in _CONTROLS.items()}
    )


def _chart(table: pd.DataFrame, cast: Cast, title: str = "compression (times shorter)", low: str = "") -> LayerChart:
    series = cast.present(table[table["group"] == "trained"])
    controls = tuple(_CONTROLS.values())
    baseline = low or "uniform code"
    return LayerChart(
        table=table, series=series, y_title=title, baseline_name=baseline, bounds=POSITIVE, controls=controls
    )


def _task_sentence(rows: pd.DataFrame, task: str, cast: Cast) -> str:
    """The layer from which labels are shortest, beside the embeddings, the control and an untrained model."""
    own, control = of(rows, labels="task"), of(rows, labels="control")
    lines = cast.present(own[own["trained"]])
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


def _beside_accuracy(frame: pd.DataFrame, code: str, scores: pd.DataFrame | None, tasks: Iterable[str]) -> list[str]:
    """Where accuracy hardly tells a task from its control, or puts the control first, and bits do."""
    if scores is None:
        return []
    bits, told = of(frame, metric="bits", code=code), []
    accuracies = one_probe(of(scores, metric="accuracy", words="all"))
    for task in tasks:
        gap, ratio = (_at_embeddings(rows, task) for rows in (accuracies, bits))
        if not (math.isfinite(gap[0]) and math.isfinite(ratio[0])):
            continue
        less, more = gap[0] - gap[1], ratio[1] / ratio[0]
        if less < _LEVEL and more > 1:
            how = "lower" if less < -_LEVEL else "as high"
            told.append(f"on {task_label(task)} accuracy is {how} ({number(gap[0], 2)} and {number(gap[1], 2)}) while the "
                        f"control takes {number(more, 2)} times the bits")  # fmt: skip
    return [f"From the embeddings, beside the control task: {'; '.join(told)}."] if told else []


def _at_embeddings(rows: pd.DataFrame, task: str) -> tuple[float, float]:
    """Of the task and of its control at layer 0, means over trained models."""
    first = of(rows[(rows["layer"] == 0) & rows["trained"]], task=task)
    own, control = (of(first, labels=labels)["value"].mean() for labels in ("task", "control"))
    return (float(own), float(control)) if pd.notna(own) and pd.notna(control) else (math.nan, math.nan)


def _codes_agree(every: pd.DataFrame, code: str, cast: Cast) -> list[str]:
    """In how many cases the other code is shortest at the same layer."""
    other = next((name for name in _CODES if name != code and len(of(every, code=name, labels="task"))), "")
    if not other:
        return []
    same, near, cases = 0, 0, 0
    for task in tasks_of(every):
        rows = [of(every, task=task, code=name, labels="task") for name in (code, other)]
        for series in _both(rows, cast):
            first, second = (best_layer(each, series.key) for each in rows)
            if first is not None and second is not None:
                cases += 1
                same += first.layer == second.layer
                near += abs(first.layer - second.layer) == 1
    beside = f", and a neighbour of it in {near}" if near else ""
    return [f"The {other} code is shortest at the same layer in {same} of {cases} cases{beside}."] if cases else []


def _both(rows: list[pd.DataFrame], cast: Cast) -> list[Series]:
    keys = [{one.key for one in cast.present(each[each["trained"]])} for each in rows]
    return [one for one in cast.series if all(one.key in own for own in keys)]


_SIZES = {
    "surviving": ("inputs of the probe that survive", "neurons"),
    "model_bits": ("model part of the code (kbit)", "kbit"),
}


def _size_figure(frame: pd.DataFrame, cast: Cast) -> Figure | None:
    """How much of a Bayesian probe is left, or else how many bits the probe itself takes."""
    every = of(frame, metric="surviving")
    metric = "surviving" if len(of(every, labels="task")) else "model_bits"
    rows = every if metric == "surviving" else of(frame, metric=metric)
    code = next((name for name in reversed(_CODES) if len(of(rows, code=name, labels="task"))), "")
    rows = of(rows, code=code).assign(baseline=math.nan)
    own = of(rows, labels="task")
    if own.empty or not own["trained"].any():
        return None
    if metric == "model_bits":
        rows = _in_kilobits(rows)
    tasks = tasks_of(own)
    shown = most_layered(own, tasks)
    tables = {task: _table(rows, task) for task in tasks}
    data = pd.concat([table.assign(task=task, metric=metric) for task, table in tables.items()], ignore_index=True)
    title, unit = _SIZES[metric]
    return Figure(
        id="probe-size",
        question="How large a probe does it take?",
        answer=_size_sentences(rows, shown, unit, cast),
        panels=[Panel.of(_chart(tables[task], cast, title, " "), task_label(task)) for task in shown],
        caption=f"{interval_note(data)} The {code} code. Each panel has its own scale.{left_out_note(tasks, shown)}",
        how_to_read=[
            "Up: how much of the probe is needed. A linguistic task that the vectors show openly takes few inputs; a "
            "control task has to be learned by heart, type by type, and keeps many.",
            "Grey: the control task, shuffled labels and untrained models, as above.",
        ],
        method=CODELENGTH,
        data=data,
        tables=("probe_codelength",),
        findings=("probing:M-6",),
    )


def _in_kilobits(rows: pd.DataFrame) -> pd.DataFrame:
    """In thousands of bits."""
    scaled = {name: rows[name] / 1000 for name in ("value", "low", "high")}
    if "replicates" in rows:
        scaled["replicates"] = [None if each is None else [v / 1000 for v in each] for each in rows["replicates"]]  # type: ignore[assignment]
    return rows.assign(**scaled)


def _size_sentences(rows: pd.DataFrame, tasks: Iterable[str], unit: str, cast: Cast) -> list[str]:
    """Of each task the sizes at the layers where they are least, beside the control's there."""
    told = []
    for task in list(tasks)[:_TOLD]:
        own, control = (of(rows, task=task, labels=labels) for labels in ("task", "control"))
        means = own[own["trained"]].groupby(["series", "layer"])["value"].mean()
        key, layer = means.idxmin()  # type: ignore[misc]
        text = f"{task_label(task)} {estimate_text(samples_at(own, str(key), int(layer)).estimate(), unit)} in layer {layer} of {cast[str(key)].label}"
        beside = control_curve(control[(control["series"] == key) & (control["layer"] == layer)], "")
        told.append(f"{text} (its control {number(float(beside['value'].iloc[0]), 0)})" if len(beside) else text)
    return [f"The smallest probes: {'; '.join(told)}."]
