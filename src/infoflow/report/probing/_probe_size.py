"""How large a probe a task takes: what is left of a Bayesian probe, or the bits of the probe itself."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from .._curves import interval_note, samples_at
from .._figure import Panel, ReportFigure
from .._in_words import Candidate, extremes_words
from .._numbers import estimate_text, number
from .._shown_models import ShownModels
from ._bits import CODES, MOST_CODED, coded_chart, coded_table, in_bits
from ._methods import CODELENGTH
from ._rows import any_trained, left_out_note, most_layered, of, one_probe, task_label, tasks_of
from ._words import case_name

_SIZES = {
    "surviving": ("units of the probe that survive", "units"),
    "model_bits": ("model part of the code (kbit)", "kbit"),
}
_TOLD = 5


def size_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """How many hidden units of a Bayesian probe are left, or else how many bits the probe itself takes."""
    metric, rows = _sized(one_probe(in_bits(frame)))
    own = of(rows, labels="task")
    if not any_trained(own):
        return None
    tasks = tasks_of(own)
    shown = most_layered(own, tasks, MOST_CODED)
    tables = {task: coded_table(rows, task) for task in tasks}
    data = pd.concat([table.assign(task=task, metric=metric) for task, table in tables.items()], ignore_index=True)
    title, unit = _SIZES[metric]
    return ReportFigure(
        id="probe-size",
        question="How large a probe does it take?",
        answer=_sentences(rows, shown, unit, models),
        words=_words(rows, shown, unit, models),
        panels=[Panel.of(coded_chart(tables[task], models, title, "all units"), task_label(task)) for task in shown],
        caption=f"{interval_note(data)} The {rows['code'].iloc[0]} code. Each panel has its own scale."
        f"{left_out_note(tasks, shown)}",
        how_to_read=[
            "Up: how much of the probe is needed. A linguistic task that the vectors show openly takes a small probe; "
            "a control task has to be learned by heart, type by type, and takes a large one.",
            "Grey: the control task, shuffled labels and untrained models, as in the figure above.",
        ],
        method=CODELENGTH,
        data=data,
        tables=("probe_codelength",),
        findings=("probing:M-6",),
    )


def _sized(every: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """Units of the first hidden layer that survive, else the model part of a code, rather the variational one."""
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
    """In thousands of bits, without the uniform code, which has no model."""
    scaled: dict[str, Any] = {name: rows[name] / 1000 for name in ("value", "low", "high")}
    if "replicates" in rows:
        scaled["replicates"] = [None if each is None else np.asarray(each) / 1000 for each in rows["replicates"]]
    return rows.assign(**scaled, baseline=np.nan)


def _words(rows: pd.DataFrame, tasks: Iterable[str], unit: str, models: ShownModels) -> str:
    """The largest and the smallest of the smallest probes, and how many are clearly smaller than the control's."""
    found, gaps = [], []
    for task in tasks:
        own, control = (of(rows, task=task, labels=labels) for labels in ("task", "control"))
        for key, layer in _smallest(own):
            here, beside = samples_at(own, key, layer), samples_at(control, key, layer)
            found.append(Candidate(case_name(task, models[key].label), here.estimate()))
            gaps += [(beside - here).estimate()] if beside else []
    smaller = f"clearly smaller than its control's in {sum(gap.sign > 0 for gap in gaps)} of {len(gaps)} cases"
    return extremes_words("the smallest probe that a task takes", found, unit, end=smaller if gaps else "")


def _smallest(own: pd.DataFrame) -> Iterator[tuple[str, int]]:
    """Of each trained model the layer with the smallest probe."""
    means = own[own["trained"]].groupby(["series", "layer"])["value"].mean()
    for key, layers in means.groupby(level=0, sort=False):
        yield str(key), int(layers.idxmin()[1])  # type: ignore[index]


def _sentences(rows: pd.DataFrame, tasks: Iterable[str], unit: str, models: ShownModels) -> list[str]:
    """Of each task the smallest probe, beside its control's in the same layer."""
    told = []
    for task in list(tasks)[:_TOLD]:
        own, control = (of(rows, task=task, labels=labels) for labels in ("task", "control"))
        means = own[own["trained"]].groupby(["series", "layer"])["value"].mean()
        key, layer = (str(part) for part in means.idxmin())  # type: ignore[union-attr]
        size = estimate_text(samples_at(own, key, int(layer)).estimate(), unit)
        text = f"{task_label(task)} {size} in layer {layer} of {models[key].label}"
        beside = samples_at(control, key, int(layer))
        told.append(f"{text}, its control {number(beside.estimate().value)}" if beside else text)
    return [f"The smallest probes: {'; '.join(told)}."]
