"""What a probe reads from each layer: accuracy beside untrained models, a control task and the majority class."""

import pandas as pd

from .._curves import interval_note, samples_at
from .._figure import Panel, ReportFigure
from .._numbers import estimate_text, listed, number
from .._series import Series
from .._shown_models import ShownModels
from ..forms._layer_chart import LayerChart
from ..forms._lines import SHARE
from ._methods import PROBES
from ._rows import (
    CONTROL_TASK,
    Best,
    against,
    alike_text,
    all_examples,
    any_trained,
    best_layer,
    curves_with,
    left_out_note,
    most_layered,
    of,
    one_probe,
    probe_label,
    sentence_start,
    task_label,
    tasks_of,
)
from ._words import cases_of, gain_words

_TOLD = 4  # tasks that have a sentence of their own
HOW_UNTRAINED = (
    "The dashed grey line is a model of the same shape that was never trained: what a probe finds there comes from "
    "the words themselves and from the shape of the network, not from training."
)


def accuracy_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel per task, over layers; None without accuracies."""
    scores = all_examples(one_probe(of(frame, metric="accuracy", words="all")))
    own, control = (of(scores, labels=name) for name in ("task", "control"))
    if not any_trained(own):
        return None
    tasks = tasks_of(own)
    shown = most_layered(own, tasks)
    tables = {task: _table(of(own, task=task), of(control, task=task)) for task in tasks}
    data = pd.concat([table.assign(task=task) for task, table in tables.items()], ignore_index=True)
    return ReportFigure(
        id="probe-accuracy",
        question="How well can each task be read from each layer?",
        answer=_sentences(own, control, shown, models),
        words=gain_words("accuracy", cases_of(own, models)),
        panels=[Panel.of(accuracy_chart(tables[task], models), _title(own, task)) for task in shown],
        caption=f"{interval_note(data)} Test part; {_probe_note(own)}. Each panel has its own scale."
        f"{left_out_note(tasks, shown)}",
        how_to_read=[
            "Across: layers, from the embeddings (0) on. Up: the share of test examples that a probe labels rightly "
            "when it sees the vectors of this layer alone.",
            f"{HOW_UNTRAINED} Dash and dots in grey: the control task, in which every type of word has one label by "
            "chance. The dotted line always names the most frequent label.",
            "A probe that does as well on the control task has learned words by heart: only what a task has above its "
            "control speaks of the vectors. It would be surprising if an untrained model did as well in upper layers "
            "as a trained one.",
        ],
        method=PROBES,
        data=data,
        tables=("probe_scores",),
        findings=tuple(f"probing:P-{n}" for n in (1, 2, 3, 6)),
        payload={"apart": True},
    )


def accuracy_chart(table: pd.DataFrame, models: ShownModels) -> LayerChart:
    how = {"y_title": "accuracy", "baseline_name": "majority class", "bounds": SHARE, "controls": (CONTROL_TASK,)}
    return LayerChart(table=table, series=models.present(table[table["group"] == "trained"]), **how)


def _table(own: pd.DataFrame, control: pd.DataFrame) -> pd.DataFrame:
    return curves_with(own, {CONTROL_TASK: control})


def _title(own: pd.DataFrame, task: str) -> str:
    """The task, and the probe where it is not the linear one."""
    probe = str(of(own, task=task)["probe"].iloc[0])
    return task_label(task) if probe == "linear" else f"{task_label(task)} ({probe_label(probe)})"


def _probe_note(own: pd.DataFrame) -> str:
    """The probe, its seeds and how many examples it was trained on."""
    probes = listed(
        ["linear" if name == "linear" else name.upper() for name in dict.fromkeys(own["probe"].astype(str))]
    )
    text = f"{probes} probes"
    if "seeds" in own:
        text += f", means over {int(own['seeds'].max())} seeds of the probe" if int(own["seeds"].max()) > 1 else ""
    if "training" in own:
        fewest, most = int(own["training"].min()), int(own["training"].max())
        text += f", trained on {fewest:,}" + (f" to {most:,}" if most > fewest else "") + " examples"
    return text


def _sentences(own: pd.DataFrame, control: pd.DataFrame, tasks: list[str], models: ShownModels) -> list[str]:
    """How often the best layer lies between the ends; where each task is best read, and how far above its controls."""
    told = [_task_sentence(of(own, task=task), of(control, task=task), task, models) for task in tasks[:_TOLD]]
    others = [_short(of(own, task=task), task, models) for task in tasks[_TOLD:]]
    rest = [f"Best layers of the other tasks: {'; '.join(others)}."] if others else []
    return [*_between(own, tasks, models), *told, *rest]


def _best_of_all(own: pd.DataFrame, models: ShownModels) -> tuple[Series, Best]:
    """The line that is highest somewhere, and where."""
    found = [(series, best_layer(own, series.key)) for series in models.present(own[own["trained"]])]
    return max([(series, best) for series, best in found if best is not None], key=lambda one: one[1].estimate.value)


def _task_sentence(own: pd.DataFrame, control: pd.DataFrame, task: str, models: ShownModels) -> str:
    series, best = _best_of_all(own, models)
    floor = number(float(own.loc[own["series"] == series.key, "baseline"].mean()), 2)
    compared = [*_above_embeddings(own, best), *_above_untrained(own, best), *_above_control(own, control, best)]
    place = f"in layer {best.layer} of {series.label}{alike_text(best)}"
    beside = f", {listed(compared)}" if compared else ""
    return (
        f"{sentence_start(task_label(task))}: {estimate_text(best.estimate)} {place}{beside}. Majority class: {floor}."
    )


def _above_embeddings(own: pd.DataFrame, best: Best) -> list[str]:
    if best.layer == 0:
        return []
    here, first = (samples_at(own, best.series, layer) for layer in (best.layer, 0))
    return [against((here - first).estimate(), "its embeddings")] if first else []


def _above_untrained(own: pd.DataFrame, best: Best) -> list[str]:
    """Beside the best layer of the untrained model, whichever it is."""
    other = best_layer(own, best.series, trained=False)
    if other is None:
        return []
    gap = samples_at(own, best.series, best.layer) - samples_at(own, best.series, other.layer, trained=False)
    return [against(gap.estimate(), f"an untrained model's best layer ({other.layer})")]


def _above_control(own: pd.DataFrame, control: pd.DataFrame, best: Best) -> list[str]:
    beside = samples_at(control, best.series, best.layer)
    gap = samples_at(own, best.series, best.layer) - beside
    return [against(gap.estimate(), "the control task there")] if beside else []


def _short(own: pd.DataFrame, task: str, models: ShownModels) -> str:
    series, best = _best_of_all(own, models)
    return f"{task_label(task)} {number(best.estimate.value, 2)} in layer {best.layer} of {series.label}"


def _between(own: pd.DataFrame, tasks: list[str], models: ShownModels) -> list[str]:
    """How many best layers are clearly neither the embeddings nor the top one."""
    by_task = [of(own, task=task) for task in tasks]
    found = [best_layer(rows, series.key) for rows in by_task for series in models.present(rows[rows["trained"]])]
    bests = [best for best in found if best is not None]
    if len(bests) < 3:
        return []
    below = sum(best.top != best.layer and best.top not in best.alike for best in bests)
    above = sum(best.layer != 0 and 0 not in best.alike for best in bests)
    return [
        f"Of {len(bests)} cases (tasks and models), the best layer is clearly above the embeddings in {above}, and the "
        f"top layer clearly below the best in {below}."
    ]
