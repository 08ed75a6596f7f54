"""In which layer the label can be read, and what linguistic probes lose and gain through tuning."""

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from infoflow.report._curves import interval_note
from infoflow.report._declared import DeclaredFigure, Drawn
from infoflow.report._layer_figure import layer_panels, stacked
from infoflow.report._numbers import estimate_text, number
from infoflow.report._samples import Samples
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._lines import SHARE
from infoflow.report.probing._rows import task_label

from ..measures import LABEL_BY_LAYER, PROBES_AFTER_TUNING
from ._methods import INSIDE
from ._rows import (
    MOST_TASKS,
    averaged,
    bands,
    columns_of,
    estimated,
    left_out,
    more_or_less,
    most_examples,
    of,
    plain,
    tasks_of,
    tuned,
)
from ._squares import CHOSEN, chosen_squares

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


def _label(frame: pd.DataFrame, models: ShownModels) -> Drawn | None:
    return _before_and_after(frame, models, ["task"], {"accuracy": ""}, _readable, "", **_ACCURACY)


def _information(frame: pd.DataFrame, models: ShownModels) -> Drawn | None:
    titles = {metric: f": {what}" for metric, what in INFORMATION.items()}
    scale = " Each panel has its own scale."
    return _before_and_after(frame, models, ["task", "metric"], titles, _known, scale, **_NATS)


def _before_and_after(
    frame: pd.DataFrame,
    models: ShownModels,
    keys: list[str],
    metrics: dict[str, str],
    told: Callable[[pd.DataFrame, str, str, ShownModels], list[str]],
    note: str,
    **axis: Any,
) -> Drawn | None:
    """One panel per task and metric, lines after tuning; None if no metric was measured after tuning.

    `keys`: the columns that tell panels apart in the data; `metrics`: each with what its titles end on.
    """
    own = most_examples(plain(frame))
    own = own[own["metric"].isin(list(metrics)) & own["trained"]].dropna(subset="value")
    if not bool((own["state"] == "after").any()):
        return None
    means = averaged(own, by := ["task", "metric", "state", "layer"])
    data = estimated(means, by, lambda metric: "share" if metric == "accuracy" else "any")
    pairs = [(task, metric) for task in tasks_of(data) for metric in metrics]
    tables = {pair: _curves(rows) for pair in pairs if len(rows := of(data, task=pair[0], metric=pair[1]))}
    drawn = dict(list(tables.items())[:MOST_TASKS])
    table = stacked({pair[: len(keys)]: curves for pair, curves in tables.items()}, *keys)
    further = left_out(list(tables), "panels" if "metric" in keys else "tasks")
    return Drawn(
        data=table,
        answer=[text for pair in drawn for text in told(of(means, task=pair[0], metric=pair[1]), *pair, models)],
        panels=layer_panels(drawn, models, lambda pair: f"{pair[0]}{metrics[pair[1]]}", **axis),
        caption=f"{interval_note(table)} Lines: after tuning.{note}{further}",
    )


def _known(means: pd.DataFrame, task: str, metric: str, models: ShownModels) -> list[str]:
    """How much tuning changed each line's information at the top layer."""
    told = [f"{label} {_gained(*both, unit=' nats')} than before tuning" for label, both, _ in _at_top(means, models)]
    return [f"Of {INFORMATION[metric]} in {task}, the top layer knows: {'; '.join(told)}."] if told else []


def _at_top(means: pd.DataFrame, models: ShownModels) -> Iterator[tuple[str, list[Samples], pd.DataFrame]]:
    """Each line's name, its values after and before tuning in the top layer, and its rows after tuning."""
    for one in models.present(means):
        states = [of(means, series=one.key, state=state) for state in ("after", "before")]
        at_top = [Samples.of(rows[rows["layer"] == rows["layer"].max()]) for rows in states]
        if all(at_top):
            yield one.label, at_top, states[0]


def _gained(after: Samples, before: Samples, unit: str = "") -> str:
    """`0.20, 0.15 to 0.25 more`, or `less`."""
    size, more = more_or_less((after - before).estimate())
    return f"{size}{unit} {more}"


def _curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Lines after tuning; the pretrained state, the untrained model and the majority class as controls."""
    groups = {"after": "trained", "before": BEFORE, "untrained": "untrained"}
    found = rows.assign(group=rows["state"].map(groups))[_COLUMNS]
    base = rows.groupby("layer", as_index=False)["baseline"].mean().rename(columns={"baseline": "value"})
    floor = base.assign(series="", group="baseline", low=base["value"], high=base["value"], seeds=0, count=0)
    return pd.concat([found, floor.assign(shown=[number(value, 2) for value in base["value"]])], ignore_index=True)


def _readable(means: pd.DataFrame, task: str, metric: str, models: ShownModels) -> list[str]:
    """Each line's best layer after tuning, and the gain from tuning at the top layer."""
    told = []
    for label, both, after in _at_top(means, models):
        share = estimate_text(both[0].estimate().within(SHARE))
        told.append(f"{label} {share} ({_gained(*both)} than before tuning; {_readable_from(after)})")
    return [f"Of {task}, the top layer tells after tuning: {'; '.join(told)}."] if told else []


def _readable_from(after: pd.DataFrame) -> str:
    """The best layer, and the first layer with nine tenths of its margin over the majority class."""
    means = after.groupby("layer")[["value", "baseline"]].mean()
    above = means["value"] - means["baseline"]
    if float(above.max()) <= 0:
        return "no layer is better than the majority class"
    first, best = min(above[above >= 0.9 * above.max()].index.tolist()), above.idxmax()
    return f"best in layer {best}, nine tenths of that gain from layer {first} on"


def _probes(frame: pd.DataFrame, models: ShownModels) -> Drawn | None:
    """One panel per line, properties by layers, one set per task; None without probes before and after."""
    data = _differences(averaged(tuned(frame), [*_PROBED, "state"]))
    if data.empty:
        return None
    rows = data.assign(
        label=[task_label(name) for name in data["probe"].astype(str)],
        text=[number(100 * value, 0) for value in data["value"]],
    ).sort_values("layer", kind="stable")
    series, labels = models.present(data), [task_label(name) for name in dict.fromkeys(data["probe"].astype(str))]
    how = {"across": "layer", "title": "layer (0 = embeddings)", "told": "change of accuracy", "signed": True}
    return Drawn(
        data=data,
        answer=[_extremes(of(data, series=one.key), one.label) for one in series],
        caption=f"{bands(data, 'test words')} Numbers: points of accuracy after tuning less before; in blue what is "
        "gained, in orange what is lost; all panels and tasks on one scale.",
        **chosen_squares(rows, series, "task", tasks_of(data), labels, **how),
    )


_PROBED = ["task", "probe", "layer"]


def _differences(means: pd.DataFrame) -> pd.DataFrame:
    """After minus before, per seed, for each line, task, property and layer."""
    rows, keys = [], ["series", *_PROBED]
    for values, own in means.groupby(keys, sort=False):
        after, before = (Samples.of(own[own["state"] == state]) for state in ("after", "before"))
        if after and before:
            rows.append({**dict(zip(keys, values, strict=True)), **columns_of((after - before).estimate())})
    return pd.DataFrame(rows, columns=[*keys, "value", "low", "high", "seeds", "count", "shown"])


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
    told = f"{name} {' and '.join(parts)}" if parts else f"{name} clearly changes nothing"
    return f"{told[:1].upper()}{told[1:]}; {len(lost) + len(gained)} of {len(data)} differences are clear of 0."


LABEL = DeclaredFigure(
    name="adaptation/label",
    id="label-by-layer",
    question="In which layer does the label become readable?",
    how_to_read=(
        "Across: layers, from the embeddings (0) on. Up: the share of test examples whose label a linear probe "
        "reads rightly from that layer alone, the model frozen. The dotted line is the most frequent label.",
        "Dash and dots in grey, untuned: the same model before tuning. Dashed grey: a model that was never "
        "trained. Where the line leaves the grey one, tuning has put the label there; below, pretraining already "
        "had. It would be surprising if the label were as readable from the embeddings as from the top.",
    ),
    method=INSIDE,
    tables=(LABEL_BY_LAYER.name,),
    payload={"apart": True},
    draw=_label,
)
INFORMATION_FIGURE = DeclaredFigure(
    name="adaptation/information",
    id="information-after-tuning",
    question="What do layers know of input, output and label, before and after?",
    how_to_read=(
        "Across: layers, from the embeddings (0) on. Up: mutual information, in nats, of the cluster of a state "
        "and the label, the token that is read, or the token to come. The dotted line is what shuffled labels or "
        "tokens have.",
        "Dash and dots in grey, untuned: the same model before tuning. Dashed grey: a model that was never "
        "trained. Tuning that throws away what the task does not need lowers the line of the token that is read "
        "and raises that of the label; it would be surprising if both rose.",
    ),
    method=INSIDE,
    tables=(LABEL_BY_LAYER.name,),
    payload={"apart": True},
    draw=_information,
)
PROBES = DeclaredFigure(
    name="adaptation/probes",
    id="probes-after-tuning",
    question="What does the model forget about words, and what does it learn?",
    how_to_read=(
        "A row is a property of words, a column a layer. A linear probe is trained on the frozen states of that "
        "layer before tuning and again after; the square is the difference. Choose the task above the picture.",
        "The model before tuning is the control. It would be surprising if tuning taught properties that the task "
        "does not need, or changed what the embeddings hold.",
    ),
    method=INSIDE,
    tables=(PROBES_AFTER_TUNING.name,),
    draw=_probes,
    **CHOSEN,
)
