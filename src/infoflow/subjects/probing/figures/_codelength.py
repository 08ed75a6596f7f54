"""How hard a task is to extract: the bits that its labels take given the states, and the probe size that they need."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._curves import interval_note, samples_at
from infoflow.report._figure import Method, ReportFigure
from infoflow.report._in_words import Candidate, Estimate, extremes_words, listed, number
from infoflow.report._layer_figure import layer_panels, stacked
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._lines import POSITIVE, SHARE

from ..measures import PROBE_CODELENGTH
from ._rows import (
    CONTROL_TASK,
    SHUFFLED,
    Case,
    any_trained,
    best_layers,
    case_name,
    case_words,
    cases_of,
    curves_with,
    held_out_at,
    left_out_note,
    most_layered,
    of,
    one_probe,
    probe_label,
    ratio,
    task_label,
    tasks_of,
)

_CODELENGTH = Method(
    id="probe-codelength",
    title="Description length",
    text="""
    The bits needed to send the labels <i>y</i> to someone who has the vectors (Voita and Titov 2020). Online code:
    <i>t</i><sub>1</sub> log<sub>2</sub> <i>K</i> − Σ<sub>i</sub> log<sub>2</sub> <i>p</i><sub>θi</sub>(block
    <i>i</i> + 1), with a fresh probe θ<sub>i</sub> trained on the blocks before it. Variational code: KL(posterior ‖
    prior) of a Bayesian probe, its model part, and the cross-entropy of the labels, its data part. Compression is
    <i>N</i> log<sub>2</sub> <i>K</i> / bits for <i>N</i> labels of <i>K</i> classes: 1 where vectors carry no
    information. All numbers are in bits; the authors' code adds nats to bits, so its numbers are higher.
    """,
)
CODES = ("online", "variational")
_CONTROLS = {"control": CONTROL_TASK, "shuffled": SHUFFLED}
MOST_CODED = 6  # tasks with panels
CODED = {"bounds": POSITIVE, "controls": tuple(_CONTROLS.values())}
_METRICS = {
    "compression": {**CODED, "y_title": "compression (times shorter)", "baseline_name": "uniform code"},
    "accuracy": {**CODED, "y_title": "accuracy of the same probe", "baseline_name": "majority class", "bounds": SHARE},
}
_LEVEL = 0.02  # a negligible difference of accuracy


def bits_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """Compression over layers, next to the same probe's accuracy; None if compression was not measured."""
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
    data = stacked(tables, "task", "metric").assign(code=code)
    probes = [probe_label(name) for name in dict.fromkeys(own["probe"].astype(str))]
    units = " Units are mixed, as in the reference's code." if "mixed" in set(own.get("units", ())) else ""
    return ReportFigure(
        id="probe-bits",
        question="How hard is each task to read?",
        answer=[*_against_accuracy(rows, shown), *_codes_agree(of(every, metric="compression"), code, models)],
        words=_words(own, of(rows, labels="control", metric="compression"), models),
        panels=[
            panel
            for (task, metric), table in tables.items()
            if task in shown
            for panel in layer_panels({f"{task_label(task)}: {metric}": table}, models, **_METRICS[metric])
        ],
        caption=f"{interval_note(data)} The {code} code of {listed(probes)} probes.{units} Each panel has its own "
        f"scale.{left_out_note(tasks, shown)}",
        how_to_read=[
            "Compression: how many times shorter the code of the labels is with this layer's vectors than with only "
            "the number of classes. Higher is easier: fewer bits in all, for the labels and for the probe.",
            "Accuracy measures how well a trained probe does; bits also measure how many examples, or how large a "
            "probe, it needed. So a task and its control may have equal accuracy, while the task needs far fewer bits.",
            "Grey: the control task (each word type has one random label), labels shuffled over all examples, and, "
            "dashed, an untrained model. Shuffled labels cannot be compressed: a line clearly above 1 would be an "
            "error.",
        ],
        method=_CODELENGTH,
        data=data,
        tables=(PROBE_CODELENGTH.name,),
        findings=tuple(f"probing:M-{n}" for n in range(1, 6)),
        payload={"apart": True, "layout": "wide"},
    )


def _words(own: pd.DataFrame, control: pd.DataFrame, models: ModelSelection) -> str:
    """Compression relative to the control task in the same layer; without a control, at the best layer."""
    cases = cases_of(own, models)

    def over_control(case: Case) -> Estimate | None:
        against = held_out_at(of(control, task=case.task), case.series.key, case.best.layer)
        return ratio(case.samples, against) if against else None

    stated = case_words("compression, as a multiple of the control task's in the same layer,", cases, over_control, 1.0)
    return stated or case_words("compression at its best layer", cases, lambda case: case.best.estimate, 1.0)


def in_bits(frame: pd.DataFrame) -> pd.DataFrame:
    """Drop lengths in mixed units if there are others."""
    if "units" not in frame or not bool((frame["units"].astype(str) == "bits").any()):
        return frame
    return frame[frame["units"].astype(str) == "bits"]


def coded_table(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """The curves of a task, with its control and shuffled labels; none if it was not measured."""
    of_task = of(rows, task=task)
    own = of(of_task, labels="task")
    if len(own) and bool((of_task["labels"].astype(str) == "shuffled").any()):
        own = own.assign(baseline=own["baseline"].where(own["metric"].astype(str) != "compression"))
    return curves_with(own, {name: of(of_task, labels=labels) for labels, name in _CONTROLS.items()})


def _against_accuracy(rows: pd.DataFrame, tasks: Iterable[str]) -> list[str]:
    """Tasks that bits separate from their control, while accuracy hardly does so or favours the control."""
    stated = []
    for task in tasks:
        (own, control), (bits, more) = (_at_embeddings(rows, task, metric) for metric in ("accuracy", "bits"))
        if own - control < _LEVEL and more > bits:  # false for missing measurements
            how = "lower" if control - own > _LEVEL else "as high"
            stated.append(
                f"on {task_label(task)} accuracy is {how} ({number(own, 2)} and {number(control, 2)}) while the "
                f"control takes {number(more / bits, 2)} times the bits"
            )
    return [f"From the embeddings, compared with the control task: {'; '.join(stated)}."] if stated else []


def _at_embeddings(rows: pd.DataFrame, task: str, metric: str) -> tuple[float, float]:
    """The task and its control at layer 0, means over trained models; NaN if missing."""
    first = of(rows[(rows["layer"] == 0) & rows["trained"]], task=task, metric=metric)
    own, control = (of(first, labels=labels)["value"].mean() for labels in ("task", "control"))
    return float(own), float(control)


def _codes_agree(every: pd.DataFrame, code: str, models: ModelSelection) -> list[str]:
    """In how many cases the other code is also shortest at the same layer."""
    other = next((name for name in CODES if name != code and len(of(every, code=name, labels="task"))), "")
    if not other:
        return []
    pairs = []
    for task in tasks_of(every):
        first, second = (best_layers(of(every, task=task, code=name, labels="task"), models) for name in (code, other))
        pairs += [(first[line].layer, second[line].layer) for line in first if line in second]
    same, near = (sum(abs(a - b) == gap for a, b in pairs) for gap in (0, 1))
    nearby = f", and at an adjacent layer in {near}" if near else ""
    return [f"The {other} code is shortest at the same layer in {same} of {len(pairs)} cases{nearby}."] if pairs else []


_SIZES = {
    "surviving": ("units of the probe that survive", "units"),
    "model_bits": ("model part of the code (kbit)", "kbit"),
}


def size_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """Number of hidden units left in a Bayesian probe, or the bits of the probe itself."""
    metric, rows = _sized(one_probe(in_bits(frame)))
    own = of(rows, labels="task")
    if not any_trained(own):
        return None
    tasks = tasks_of(own)
    shown = most_layered(own, tasks, MOST_CODED)
    tables = {task: coded_table(rows, task) for task in tasks}
    title, unit = _SIZES[metric]
    drawn, axis = {task: tables[task] for task in shown}, {**CODED, "y_title": title, "baseline_name": "all units"}
    data = stacked(tables, "task").assign(metric=metric)
    return ReportFigure(
        id="probe-size",
        question="How large a probe is needed?",
        words=_size_words(rows, shown, unit, models),
        panels=layer_panels(drawn, models, task_label, **axis),
        caption=f"{interval_note(data)} The {rows['code'].iloc[0]} code. Each panel has its own scale."
        f"{left_out_note(tasks, shown)}",
        how_to_read=[
            "Up: how much of the probe is needed. A small probe is enough for a task that is easy to read from the "
            "vectors; a control task must be memorised, type by type, and needs a large one.",
            "Grey: the control task, shuffled labels and untrained models, as in the figure above.",
        ],
        method=_CODELENGTH,
        data=data,
        tables=(PROBE_CODELENGTH.name,),
        findings=("probing:M-6",),
    )


def _sized(every: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """Surviving units of the first hidden layer, or the model part of a code, preferably the variational one."""
    surviving = of(every, metric="surviving")
    if len(of(surviving, labels="task")):
        if "probe_layer" in surviving:
            layers = sorted(surviving["probe_layer"].unique())
            surviving = surviving[surviving["probe_layer"] == layers[min(1, len(layers) - 1)]]
        return "surviving", surviving
    bits = of(every, metric="model_bits")
    code = next((name for name in reversed(CODES) if len(of(bits, code=name, labels="task"))), "")
    return "model_bits", _in_kilobits(of(bits, code=code))


def _in_kilobits(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in thousands of bits, without the uniform code, which has no model."""
    scaled: dict[str, Any] = {name: rows[name] / 1000 for name in ("value", "low", "high")}
    if "replicates" in rows:
        scaled["replicates"] = [None if each is None else np.asarray(each) / 1000 for each in rows["replicates"]]
    return rows.assign(**scaled, baseline=np.nan)


def _size_words(rows: pd.DataFrame, tasks: Iterable[str], unit: str, models: ModelSelection) -> str:
    """The largest and smallest minimal probes, and how many are clearly smaller than the control's."""
    found, gaps = [], []
    for task in tasks:
        own, control = (of(rows, task=task, labels=labels) for labels in ("task", "control"))
        means = own[own["trained"]].groupby(["series", "layer"])["value"].mean()
        for key, layer in means.groupby(level=0, sort=False).idxmin():
            here, untrained = samples_at(own, key, layer), samples_at(control, key, layer)
            found.append(Candidate(case_name(task, models[key].label), here.estimate()))
            gaps += [(untrained - here).estimate()] if untrained else []
    smaller = f"clearly smaller than its control's in {sum(gap.sign > 0 for gap in gaps)} of {len(gaps)} cases"
    return extremes_words("the smallest probe that a task takes", found, unit, end=smaller if gaps else "")
