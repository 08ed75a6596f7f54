"""How far tuning changed each layer, and which parts learned the task."""

import numpy as np
import pandas as pd

from infoflow.report._figure import Panel, ReportFigure
from infoflow.report._in_words import Samples, chosen, difference_text, listed, number, two_digits
from infoflow.report._model_selection import ModelSelection

from ..measures import TUNING_ALLOCATION, TUNING_CHANGE, TUNING_WEIGHTS
from ._rows import (
    ALLOCATION,
    FROM_SCRATCH,
    INSIDE,
    SHUFFLED,
    against_shuffled,
    averaged,
    bands,
    chosen_of,
    estimated,
    most_examples,
    of,
    plain,
    pretrained,
    square_chart,
    square_panels,
    tasks_of,
)

MEASURES = {"pwcca": "PWCCA", "cka": "linear CKA", "rsa": "RSA"}
_CONTROLS = {"untrained": FROM_SCRATCH, SHUFFLED: SHUFFLED}  # group of rows → the row that holds its control
_BY = ["task", "measure", "layer"]
COMPONENTS = (
    *("query", "key", "value", "output", "cross query", "cross key", "cross value", "cross output"),
    *("mlp_in", "mlp_out", "norm", "cross norm", "embeddings", "positions", "segments", "head", "adapter", "task-head"),
)


def change_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per line, with tasks as rows; None if no representations were compared before and after tuning."""
    own = most_examples(plain(frame))
    own = own[own["measure"].isin(list(MEASURES))]
    if own.empty or not bool(own["trained"].any()):
        return None
    means = averaged(own, _BY)
    plainly = estimated(means, _BY)
    data = against_shuffled(plainly, frame, _BY)
    measures = [name for name in MEASURES if name in set(plainly["measure"].astype(str))]
    drawn = _drawn(data, measures)
    series = models.present(data[data["trained"]])
    controls = [name for name in _CONTROLS.values() if name in set(drawn["label"])]
    labels = [*tasks_of(data[data["trained"]]), *controls]
    return ReportFigure(
        id="tuning-change",
        question="Which layers did tuning change?",
        answer=[_sentence(of(means, series=one.key, trained=True), measures, one.label) for one in series],
        panels=square_panels(
            drawn, series, across="layer", labels=labels, title="layer (0 = embeddings)", quantity="distance"
        ),
        caption=f"{bands(plainly, 'words')} Colours, and numbers where they fit: 100 × the distance (1 − similarity) "
        "between the layer before and after tuning. All panels share one scale." + _of_controls(controls),
        how_to_read=[
            "Each row is a task, each column a layer. The stronger the colour, the further tuning has moved the words "
            "of the task's test texts in that layer's space. Choose the measure of distance above the picture.",
            "Two seeds of tuning differ too. Hover to see their distance: a change that is no larger is not due to "
            "the task. It would be surprising if the embeddings moved as far as the top layer.",
        ],
        method=INSIDE,
        data=data,
        tables=(TUNING_CHANGE.name,),
        findings=("adaptation:A-1",),
        **chosen_of([MEASURES[name] for name in measures]),
    )


def _of_controls(controls: list[str]) -> str:
    stated = {FROM_SCRATCH: "the untrained model after tuning", SHUFFLED: "tuning on shuffled labels"}
    if not controls:
        return ""
    return f" Last row{'s' * (len(controls) > 1)}: {listed([stated[name] for name in controls])}, mean over tasks."


def _drawn(data: pd.DataFrame, measures: list[str]) -> pd.DataFrame:
    """The rows with labels and texts; each control becomes one row, the mean over tasks."""
    trained = data[data["group"] == "trained"].assign(label=data["task"])
    between = [f"; between seeds {number(base, 2)}" for base in trained["baseline"]]
    rows = trained.assign(shown=trained["shown"] + between)
    grey = data[data["group"] != "trained"].assign(label=data["group"].map(_CONTROLS))
    if len(grey):
        mean = grey.groupby(["series", "label", "measure", "layer"], as_index=False, sort=False)["value"].mean()
        rows = pd.concat([rows, mean.assign(shown=[number(value, 2) for value in mean["value"]])])
    rows = rows[rows["measure"].isin(measures)].sort_values("layer", kind="stable")
    return rows.assign(
        set=rows["measure"].map(measures.index),
        text=[f"{100 * value:.0f}" for value in rows["value"]],
        grey=rows["label"].isin(list(_CONTROLS.values())),
    )


def _sentence(rows: pd.DataFrame, measures: list[str], name: str) -> str:
    """Compare the upper half of the layers with the lower half, and name the layer that changed most.

    Uses the first measure with known values: PWCCA needs more words than some tasks have.
    """
    means = of(rows, measure=next(one for one in measures if one in set(rows["measure"].astype(str))))
    top = int(means["layer"].max())
    halves = []
    for part in (means["layer"] > (top + 1) / 2, (means["layer"] > 0) & (means["layer"] <= top / 2)):
        halves.append(Samples.of(averaged(means[part], [])))
    layers = {int(str(layer)): Samples.of(averaged(own, [])) for layer, own in means.groupby("layer")}
    furthest = chosen(layers)
    if furthest is None:
        return ""
    most = f"In {name}, tuning moved layer {furthest.key} furthest ({number(furthest.estimate.value, 2)})"
    if not all(halves):
        return f"{most}."
    gap = (halves[0] - halves[1]).estimate()
    return f"{most}; the upper half of the layers moved {difference_text(gap, 'more', 'less')} than the lower half."


def weights_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per line, with blocks by components and one set per task; None if there are no weights."""
    own = pretrained(frame)
    if own.empty:
        return None
    keys = ["series", "task", "layer", "component"]
    data = own.groupby(keys, as_index=False, sort=False)[["relative", "cosine", "parameters"]].mean()
    tasks, rows = tasks_of(data), _by_component(data)
    rows = rows.assign(
        value=rows["relative"],
        label=[block_label(layer) for layer in rows["layer"]],
        set=rows["task"].map(tasks.index),
        text=[f"{100 * value:.0f}" for value in rows["relative"]],
        shown=[f"{100 * value:.2g}%" for value in rows["relative"]],
    )
    labels = block_labels(data["layer"])
    return ReportFigure(
        id="tuning-weights",
        question="Which weights did tuning move?",
        answer=[_furthest(own, one.label) for one, own in models.each(data)],
        panels=square_panels(
            rows, models.present(data), across="component", labels=labels, title="part of the block", quantity="change"
        ),
        caption="Colours, and numbers where they fit: norm of the change in percent of the norm before; means over "
        "seeds. All panels and tasks share one scale. There is no control: weights may also move at random.",
        how_to_read=[
            "Each row is a block, the top one first; each column is one of its parts. The stronger the colour, the "
            "further its weights moved, relative to their size. Choose the task above the picture.",
            "How far weights move says less than what this changes: a block whose weights moved, but whose space did "
            "not (figure above), has moved in directions that its input does not use.",
        ],
        method=INSIDE,
        data=data,
        tables=(TUNING_WEIGHTS.name,),
        **chosen_of(tasks),
    )


def _by_component(data: pd.DataFrame) -> pd.DataFrame:
    """The rows in the order of `COMPONENTS`; others come last."""
    order = [*COMPONENTS, *sorted(set(data["component"].astype(str)) - set(COMPONENTS))]
    return data.sort_values("component", key=lambda names: names.map(order.index), kind="stable")


def block_label(layer: int, stack: str = "") -> str:
    return {-1: "embeddings", -2: "task's head"}.get(int(layer), f"{stack} block {int(layer)}".lstrip())


def block_labels(layers: pd.Series, stack: str = "") -> list[str]:
    """Row labels from top to bottom: the task's head, the blocks, the embeddings."""
    found = sorted({int(layer) for layer in layers}, key=lambda layer: 10**6 if layer == -2 else layer, reverse=True)
    return [block_label(layer, stack) for layer in found]


def _furthest(rows: pd.DataFrame, name: str) -> str:
    blocks = rows[rows["layer"] >= 0].groupby("layer")["relative"].mean()
    parts = rows[rows["layer"] >= 0].groupby("component")["relative"].mean()
    if blocks.empty:
        return f"In {name}, no weights of blocks were compared."
    most, least = int(str(blocks.idxmax())), int(str(blocks.idxmin()))
    least_text = f"; block {least}: {two_digits(100 * blocks.min())}%" if least != most else ""
    return (
        f"In {name}, the block that moved furthest is {most} ({two_digits(100 * blocks.max())}% of its "
        f"norm{least_text}), and the part is {parts.idxmax()} ({two_digits(100 * parts.max())}%)."
    )


# Which parts learned the task: the change of the loss during tuning, by block and component.


def learned_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """A panel of blocks by components for each model, one set per task; None if nothing was recorded."""
    own = pretrained(frame)
    own = own[own["total"] != 0]
    if own.empty:
        return None
    data = _by_place(own, models)
    tasks, rows = tasks_of(data), _by_component(data)
    rows = rows.assign(
        nats=rows["value"],
        value=rows["share"],
        label=[block_label(layer, stack) for layer, stack in zip(rows["layer"], rows["stack"], strict=True)],
        set=rows["task"].map(tasks.index),
        text=[number(100 * share, 0) for share in rows["share"]],
        shown=[f"{number(100 * share, 1)}% of the loss change, {number(nats, 3)} nats"
               for share, nats in zip(rows["share"], rows["value"], strict=True)],
    )  # fmt: skip
    most = float(data["share"].abs().max())
    return ReportFigure(
        id="tuning-learned",
        question="Which parts learned the task?",
        answer=[_learning_sentence(own, one.label) for one, own in models.each(data)],
        panels=[_panel(own, one.label, most) for one, own in models.each(rows)],
        caption="Numbers: percent of the fall of the training loss that is allocated to these weights; blue: helped, "
        "orange: hurt. Means over seeds, without intervals. All panels and tasks share one scale.",
        how_to_read=[
            "Each row is a block, with the task's head above them; each column is a part. The change of the loss at "
            "each step of tuning is divided among all weights; a square shows the share of its weights. Choose the "
            "task above the picture.",
            "All shares add up to 100. The task's head starts from random weights, so it has much to learn (except in "
            "generation, which uses the pretrained head); the rest is the share of the pretrained body. It would be "
            "surprising if the embeddings had contributed most.",
        ],
        method=ALLOCATION,
        data=data,
        tables=(TUNING_ALLOCATION.name,),
        **chosen_of(tasks),
    )


def _by_place(own: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """Mean shares over seeds at each place of a model; `stack` is empty except for blocks outside the compared stack.

    Embeddings of both stacks count as one place, so that a model's shares add up to one.
    """
    is_other = ~own.index.isin(models.main(own).index) & (own["layer"] >= 0).to_numpy()
    own = own.assign(share=own["value"] / own["total"], stack=np.where(is_other, own["stack"].astype(str), ""))
    keys, numbers = ["series", "task", "stack", "layer", "component"], ["share", "value", "parameters"]
    sums = own.groupby([*keys, "seed", "tuning_seed"], as_index=False, sort=False)[numbers].sum()
    return sums.groupby(keys, as_index=False, sort=False)[numbers].mean()


def _panel(rows: pd.DataFrame, title: str, strongest: float) -> Panel:
    stacks = [part for _, part in rows.groupby("stack", sort=True)]  # the stack "" comes first
    labels = block_labels(stacks[0]["layer"])
    above = [label for part in stacks[1:] for label in block_labels(part["layer"], str(part["stack"].iloc[0]))]
    place = 1 if block_label(-2) in labels else 0
    labels[place:place] = above
    how = {"across": "component", "title": "part of the block", "quantity": "share", "signed": True}
    return Panel(spec=square_chart(rows, labels=labels, strongest=strongest, **how), title=title)


def _learning_sentence(data: pd.DataFrame, name: str) -> str:
    by_task = data.groupby(["task", "stack", "layer"])["share"].sum()
    by_place = by_task.unstack("task", fill_value=0.0).mean(axis=1).rename("share")  # only some tasks tune a decoder
    head = f"{number(100 * by_place.get(('', -2), 0.0), 0)}% of the fall of the loss came from the task's head"
    blocks = by_place[by_place.index.get_level_values("layer") >= 0]
    if blocks.empty:
        return f"In {name}, {head}."
    stack, layer, _ = blocks.nlargest(1).reset_index().iloc[0]
    of_stack = f" of the {stack}" if stack else ""
    embeddings = number(100 * by_place.get(("", -1), 0.0), 0)
    return (
        f"In {name}, {head}, {number(100 * blocks.sum(), 0)}% from the blocks, {embeddings}% from the embeddings; "
        f"block {layer}{of_stack} contributed most ({number(100 * blocks.max(), 0)}%), means over tasks."
    )
