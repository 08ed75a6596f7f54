"""A single block taken back to what it was, all others tuned: which block the task needs, which one forgot."""

from dataclasses import asdict

import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import estimate_text, number
from .._samples import Samples
from .._shown_models import ShownModels
from ._methods import SWAPS
from ._rows import averaged, bands, most_examples, of, plain, tasks_of
from ._squares import square_chart

CHANGES = {"score": "change of the task's score", "pretraining-loss": "pretraining loss regained (nats per token)"}


def single_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for each line, tasks by blocks, a set for score and loss; None where no single block was taken back."""
    own = most_examples(plain(frame))
    own = own[own["trained"]]
    if "layer" not in own or not bool((own["rewound"] == "one").any()):
        return None
    means = averaged(own, ["task", "quantity", "rewound", "layer"])
    data = _changes(means)
    if data.empty:
        return None
    kinds = [name for name in CHANGES if len(of(data, quantity=name))]
    tasks, series = tasks_of(data), models.present(data)
    most = data.groupby("quantity")["value"].agg(lambda values: values.abs().max() or 1.0)
    rows = data.assign(
        label=data["task"],
        set=data["quantity"].map({name: place for place, name in enumerate(kinds)}),
        text=[number(value, 2) for value in data["value"]],
        value=data["value"] / data["quantity"].map(most).astype(float),
    ).sort_values("layer", kind="stable")
    how = {"across": "layer", "labels": tasks, "title": "block", "told": "change", "strongest": 1.0, "signed": True}
    return ReportFigure(
        id="single-blocks",
        question="Which single block does the task need, and which one forgot?",
        answer=[_sentence(of(data, series=one.key), one.label) for one in series],
        panels=[Panel(spec=square_chart(of(rows, series=one.key), **how), title=one.label) for one in series],
        caption=f"{bands(of(data, quantity='score'))} In blue what gets better when that block alone has its weights "
        "from before tuning, in orange what gets worse; of score and of loss all panels are on one scale.",
        how_to_read=[
            "A row is a task, a column a block, an encoder's before its decoder's. All other blocks, the embeddings "
            "and the task's head stay tuned. Choose score or pretraining loss above the picture.",
            "A block without which the score falls learned what the others cannot do for it; one whose return lowers "
            "the pretraining loss had forgotten most. It would be surprising if a single block undid all of tuning.",
        ],
        method=SWAPS,
        data=data,
        tables=("layer_swaps",),
        template="evaluated.html.jinja",
        payload={"sets": [CHANGES[name] for name in kinds], "layout": "wide", "apart": True},
    )


def _changes(means: pd.DataFrame) -> pd.DataFrame:
    """What a single block taken back gains, seed by seed: what the score rises by, what the loss falls by."""
    keys = ["series", "task", "quantity"]
    rows = []
    for values, own in means.groupby(keys, sort=False):
        named = dict(zip(keys, values, strict=True))
        none, single = Samples.of(of(own, rewound="none")), of(own, rewound="one")
        for layer, of_block in single.groupby("layer", sort=True):
            change = Samples.of(of_block) - none
            if change:
                found = change.estimate() if named["quantity"] == "score" else change.estimate().negated()
                rows.append({**named, "layer": layer, **asdict(found), "shown": estimate_text(found)})
    return pd.DataFrame(rows)


def _sentence(data: pd.DataFrame, name: str) -> str:
    """The block whose return costs the task most, and the one whose return regains most, means over tasks."""
    told = []
    score, regained = (
        {int(str(layer)): float(own["value"].mean()) for layer, own in of(data, quantity=name).groupby("layer")}
        for name in CHANGES
    )
    least, most = (min(score, key=score.__getitem__, default=-1), max(regained, key=regained.__getitem__, default=-1))
    if score and score[least] < 0:
        told.append(f"block {least} taken back alone costs the task most ({number(-score[least], 2)})")
    elif score:
        told.append("no block taken back alone costs the task anything")
    if regained and regained[most] > 0:
        told.append(f"block {most} regains most of pretraining ({number(regained[most], 2)} nats)")
    clear = len(data[(data["low"] > 0) | (data["high"] < 0)])
    return f"In {name}, {', '.join(told)}; {clear} of {len(data)} changes are clear of 0."
