"""Which parts learned the task: the change of the loss during tuning, by block and component."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import Panel, ReportFigure
from infoflow.report._numbers import number
from infoflow.report._shown_models import ShownModels

from ..measures import TUNING_ALLOCATION
from ._change import COMPONENTS, block_label, block_labels
from ._methods import ALLOCATION
from ._rows import most_examples, of, plain, tasks_of
from ._squares import chosen_of, square_chart


def learned_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One panel per line, blocks by components, one set per task; None without a recording."""
    own = most_examples(plain(frame))
    own = own[own["trained"] & (own["total"] != 0)]
    if own.empty:
        return None
    data = _by_place(own, models)
    tasks = tasks_of(data)
    order = [*COMPONENTS, *sorted(set(data["component"].astype(str)) - set(COMPONENTS))]
    places = data["component"].map(order.index)
    rows = data.assign(place=places).sort_values("place", kind="stable")
    rows = rows.assign(
        nats=rows["value"],
        value=rows["share"],
        label=[block_label(layer, stack) for layer, stack in zip(rows["layer"], rows["stack"], strict=True)],
        set=rows["task"].map(tasks.index),
        text=[number(100 * share, 0) for share in rows["share"]],
        shown=[f"{number(100 * share, 1)}% of the loss change, {number(nats, 3)} nats"
               for share, nats in zip(rows["share"], rows["value"], strict=True)],
    )  # fmt: skip
    series, most = models.present(data), float(data["share"].abs().max())
    how = {"across": "component", "title": "part of the block", "told": "share", "strongest": most, "signed": True}
    return ReportFigure(
        id="tuning-learned",
        question="Who learned the task?",
        answer=[_sentence(of(data, series=one.key), one.label) for one in series],
        panels=[_panel(of(rows, series=one.key), one.label, how) for one in series],
        caption="Numbers: percent of the fall of the training loss that fell to these weights; in blue what helped, in "
        "orange what hurt. Means over seeds; no interval is known. All panels and tasks on one scale.",
        how_to_read=[
            "A row is a block, above them the head of the task, a column a part. The change of the loss at each step "
            "of tuning is shared out over all weights; the square is what came to these. Choose the task above the "
            "picture.",
            "All shares add up to 100. The head of the task starts from random weights and so has much to learn (a "
            "text is written by the pretrained one); what is left is what the pretrained body did. It would be "
            "surprising if the embeddings had done most.",
        ],
        method=ALLOCATION,
        data=data,
        tables=(TUNING_ALLOCATION.name,),
        **chosen_of(tasks),
    )


def _by_place(own: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """Each position's shares as means over seeds; `stack` is empty except for blocks outside the compared stack.

    Embeddings of both stacks count as one position, so that a model's shares add up to one.
    """
    beside = ~own.index.isin(models.main(own).index) & (own["layer"] >= 0).to_numpy()
    own = own.assign(share=own["value"] / own["total"], stack=np.where(beside, own["stack"].astype(str), ""))
    keys, numbers = ["series", "task", "stack", "layer", "component"], ["share", "value", "parameters"]
    sums = own.groupby([*keys, "seed", "tuning_seed"], as_index=False, sort=False)[numbers].sum()
    return sums.groupby(keys, as_index=False, sort=False)[numbers].mean()


def _panel(rows: pd.DataFrame, title: str, how: dict[str, Any]) -> Panel:
    stacks = [part for _, part in rows.groupby("stack", sort=True)]  # "" is the first
    labels = [*block_labels(stacks[0]["layer"])]
    above = [label for part in stacks[1:] for label in block_labels(part["layer"], str(part["stack"].iloc[0]))]
    place = 1 if block_label(-2) in labels else 0
    return Panel(spec=square_chart(rows, labels=[*labels[:place], *above, *labels[place:]], **how), title=title)


def _sentence(data: pd.DataFrame, name: str) -> str:
    by_task = data.groupby(["task", "stack", "layer"])["share"].sum()
    by_place = by_task.unstack("task", fill_value=0.0).mean(axis=1).rename("share")  # a decoder is tuned on some only
    head = f"{number(100 * by_place.get(('', -2), 0.0), 0)}% of the fall of the loss came from the task's head"
    blocks = by_place[by_place.index.get_level_values("layer") >= 0]
    if blocks.empty:
        return f"In {name}, {head}."
    stack, layer, _ = blocks.nlargest(1).reset_index().iloc[0]
    of_stack = f" of the {stack}" if stack else ""
    embeddings = number(100 * by_place.get(("", -1), 0.0), 0)
    return (
        f"In {name}, {head}, {number(100 * blocks.sum(), 0)}% from the blocks, {embeddings}% from the embeddings; of "
        f"the blocks number {layer}{of_stack} did most ({number(100 * blocks.max(), 0)}%), means over tasks."
    )
