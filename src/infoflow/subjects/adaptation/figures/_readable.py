"""In which layer the label can be read, and what linguistic probes lose and gain through tuning."""

from collections.abc import Collection, Iterator
from dataclasses import asdict

import pandas as pd

from infoflow.foundation import Scale
from infoflow.report._curves import interval_note
from infoflow.report._figure import ReportFigure
from infoflow.report._in_words import Estimate, Samples, difference_text, estimate_text, number
from infoflow.report._layer_figure import layer_panels, stacked
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._lines import SHARE
from infoflow.subjects.probing.figures._rows import task_label

from ..measures import LABEL_BY_LAYER, PROBES_AFTER_TUNING
from ._rows import (
    INSIDE,
    MOST_TASKS,
    averaged,
    bands,
    chosen_of,
    estimated,
    left_out,
    most_examples,
    of,
    plain,
    pretrained,
    square_panels,
    tasks_of,
)

BEFORE = "untuned"
INFORMATION = {
    "information": "the label",
    "information about the input": "the token that is read",
    "information about the output": "the token to come",
}
"""Information metrics → what the information is about."""
_ACCURACY = {
    "y_title": "accuracy of a linear probe",
    "baseline_name": "majority class",
    "bounds": SHARE,
    "controls": (BEFORE,),
}
_NATS = {"y_title": "nats", "baseline_name": "shuffled", "controls": (BEFORE,)}
_COLUMNS = ["series", "group", "layer", "value", "low", "high", "seeds", "count", "shown"]


def label_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per task, lines after tuning; None if no labels were probed."""
    means, tables = _after_tuning(frame, ("accuracy",), "share")
    if not tables:
        return None
    table, drawn = stacked(tables, "task", "metric"), dict(list(tables.items())[:MOST_TASKS])
    return ReportFigure(
        id="label-by-layer",
        question="In which layer does the label become readable?",
        answer=[text for task, _ in drawn for text in _sentences(of(means, task=task), task, models)],
        panels=layer_panels(drawn, models, lambda key: key[0], **_ACCURACY),
        caption=f"{interval_note(table)} Lines: after tuning.{left_out(list(tables))}",
        how_to_read=[
            "Across: layers, from the embeddings (0) on. Up: the share of test examples whose label a linear probe "
            "reads correctly from that layer of the frozen model. The dotted line is the most frequent label.",
            "Grey with dashes and dots, untuned: the same model before tuning. Dashed grey: an untrained model. "
            "Where the line is above the untuned one, tuning has made the label readable; where they agree, "
            "pretraining had. It would be surprising if the embeddings showed the label as well as the top does.",
        ],
        method=INSIDE,
        data=table,
        tables=(LABEL_BY_LAYER.name,),
        payload={"apart": True},
    )


def information_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per task and target of the information, lines after tuning; None if none was measured."""
    means, tables = _after_tuning(frame, INFORMATION)
    if not tables:
        return None
    table, drawn = stacked(tables, "task", "metric"), dict(list(tables.items())[:MOST_TASKS])
    return ReportFigure(
        id="information-after-tuning",
        question="What do layers encode about input, output and label, before and after tuning?",
        answer=[
            text
            for task, metric in drawn
            for text in _known(of(means, task=task, metric=metric), task, INFORMATION[metric], models)
        ],
        panels=layer_panels(drawn, models, lambda key: f"{key[0]}: {INFORMATION[key[1]]}", **_NATS),
        caption=f"{interval_note(table)} Lines: after tuning. Each panel has its own scale."
        f"{left_out(list(tables), 'panels')}",
        how_to_read=[
            "Across: layers, from the embeddings (0) on. Up: mutual information, in nats, between the cluster of a "
            "state and the label, the token that is read, or the token to come. The dotted line is the same for "
            "shuffled labels or tokens.",
            "Grey with dashes and dots, untuned: the same model before tuning. Dashed grey: an untrained model. "
            "Tuning that discards what the task does not need lowers the line for the token that is read and raises "
            "the line for the label; it would be surprising if both rose.",
        ],
        method=INSIDE,
        data=table,
        tables=(LABEL_BY_LAYER.name,),
        payload={"apart": True},
    )


def _after_tuning(
    frame: pd.DataFrame, metrics: Collection[str], scale: Scale = "any"
) -> tuple[pd.DataFrame, dict[tuple[str, str], pd.DataFrame]]:
    """Means over seeds of these metrics, and the curves by task and metric; no curves without rows after tuning."""
    own = most_examples(plain(frame))
    own = own[own["metric"].isin(list(metrics)) & own["trained"]].dropna(subset="value")
    if not bool((own["state"] == "after").any()):
        return own, {}
    by = ["task", "metric", "state", "layer"]
    means = averaged(own, by)
    data = estimated(means, by, scale)
    keys = [(task, metric) for task in tasks_of(data) for metric in metrics]
    rows = {(task, metric): of(data, task=task, metric=metric) for task, metric in keys}
    return means, {key: _curves(part) for key, part in rows.items() if len(part)}


def _tops(means: pd.DataFrame, models: ModelSelection) -> Iterator[tuple[Series, Estimate, Estimate]]:
    """Each line with its value at the top layer after tuning, and its gain from tuning there."""
    for one in models.present(means):
        after, before = (of(means, series=one.key, state=state) for state in ("after", "before"))
        tops = [Samples.of(rows[rows["layer"] == after["layer"].max()]) for rows in (after, before)]
        if all(tops):
            yield one, tops[0].estimate(), (tops[0] - tops[1]).estimate()


def _known(means: pd.DataFrame, task: str, what: str, models: ModelSelection) -> list[str]:
    """How much tuning changed each line's information at the top layer."""
    gains = [f"{difference_text(gain, 'more', 'less', 'nats')} in {one.label}" for one, _, gain in _tops(means, models)]
    return [f"After tuning for {task}, information about {what} in the top layer: {'; '.join(gains)}."] if gains else []


def _curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Lines after tuning; the pretrained state, the untrained model and the majority class as controls."""
    groups = {"after": "trained", "before": BEFORE, "untrained": "untrained"}
    found = rows.assign(group=rows["state"].map(groups))[_COLUMNS]
    base = rows.groupby("layer", as_index=False)["baseline"].mean().rename(columns={"baseline": "value"})
    floor = base.assign(series="", group="baseline", low=base["value"], high=base["value"], seeds=0, count=0)
    return pd.concat([found, floor.assign(shown=[number(value, 2) for value in base["value"]])], ignore_index=True)


def _sentences(means: pd.DataFrame, task: str, models: ModelSelection) -> list[str]:
    """How readable a task's label is at the top layer after tuning, what tuning gained, and each line's best layer."""
    stated = [
        f"{one.label} {estimate_text(top.within(SHARE))}, {difference_text(gain, 'more', 'less')} than before tuning "
        f"({_readable_from(of(means, series=one.key, state='after'))})"
        for one, top, gain in _tops(means, models)
    ]
    return [f"The label of {task}, read from the top layer after tuning: {'; '.join(stated)}."] if stated else []


def _readable_from(after: pd.DataFrame) -> str:
    """The best layer, and the first layer with nine tenths of its margin over the majority class."""
    means = after.groupby("layer")[["value", "baseline"]].mean()
    above = means["value"] - means["baseline"]
    if float(above.max()) <= 0:
        return "no layer is better than the majority class"
    first, best = min(above[above >= 0.9 * above.max()].index.tolist()), above.idxmax()
    return f"best in layer {best}, nine tenths of its margin from layer {first} on"


def probes_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """A panel of properties by layers for each model, one set per task; None without probes before and after."""
    own = pretrained(frame)
    means = averaged(own, ["task", "probe", "layer", "state"])
    data = _differences(means)
    if data.empty:
        return None
    tasks = tasks_of(data)
    probes = list(dict.fromkeys(data["probe"].astype(str)))
    rows = data.assign(
        label=[task_label(name) for name in data["probe"].astype(str)],
        set=data["task"].map(tasks.index),
        text=[number(100 * value, 0) for value in data["value"]],
    ).sort_values("layer", kind="stable")
    how = {"across": "layer", "title": "layer (0 = embeddings)", "quantity": "change of accuracy", "signed": True}
    return ReportFigure(
        id="probes-after-tuning",
        question="What does the model forget about words, and what does it learn?",
        answer=[_extremes(own, one.label) for one, own in models.each(data)],
        panels=square_panels(rows, models.present(data), labels=[task_label(name) for name in probes], **how),
        caption=f"{bands(data, 'test words')} Numbers: points of accuracy after tuning minus before; blue: gained, "
        "orange: lost. All panels and tasks share one scale.",
        how_to_read=[
            "Each row is a property of words, each column a layer. A linear probe is trained on the frozen states of "
            "that layer before tuning and again after; a square is the difference. Choose the task above the picture.",
            "The model before tuning is the control. It would be surprising if tuning taught properties that the task "
            "does not need, or changed what the embeddings hold.",
        ],
        method=INSIDE,
        data=data,
        tables=(PROBES_AFTER_TUNING.name,),
        **chosen_of(tasks),
    )


def _differences(means: pd.DataFrame) -> pd.DataFrame:
    """After minus before, per seed, for each line, task, property and layer."""
    rows = []
    for keys, own in means.groupby(["series", "task", "probe", "layer"], sort=False):
        after, before = (Samples.of(own[own["state"] == state]) for state in ("after", "before"))
        if after and before:
            found = (after - before).estimate()
            named = dict(zip(("series", "task", "probe", "layer"), keys, strict=True))
            rows.append({**named, **asdict(found), "shown": estimate_text(found)})
    return pd.DataFrame(
        rows, columns=["series", "task", "probe", "layer", "value", "low", "high", "seeds", "count", "shown"]
    )


def _extremes(data: pd.DataFrame, name: str) -> str:
    """The largest loss and the largest gain among differences whose intervals exclude 0."""
    lost, gained = data[data["high"] < 0], data[data["low"] > 0]
    parts = []
    for word, clear, order in (("loses most", lost, lost["value"]), ("gains most", gained, -gained["value"])):
        if len(clear):
            row = clear.loc[order.idxmin()]
            size = str(row["shown"]).replace(" (", ", ").removesuffix(")")
            place_text = f"of {task_label(str(row['probe']))} in layer {int(row['layer'])}"
            parts.append(f"{word} {place_text} ({row['task']}: {size})")
    stated = f"{name} {' and '.join(parts)}" if parts else f"{name} shows no clear change"
    return f"{stated[:1].upper()}{stated[1:]}; {len(lost) + len(gained)} of {len(data)} differences are clear of 0."
