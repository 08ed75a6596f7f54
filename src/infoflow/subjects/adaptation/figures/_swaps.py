"""What is lost and regained when layers are reset to their pretrained weights, jointly or one block at a time."""

from dataclasses import asdict
from typing import Any

import pandas as pd

from infoflow.foundation import Scale
from infoflow.report._figure import Panel, ReportFigure
from infoflow.report._in_words import Samples, difference_text, estimate_text, inline_text, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._chart import amount, finished, tips
from infoflow.report.forms._lines import LineKind, level, lines, looks_of, names_above
from infoflow.report.forms._marks import Constant, span

from ..measures import LAYER_SWAPS
from ._rows import (
    SWAPS,
    averaged,
    bands,
    chosen_of,
    estimated,
    of,
    pretrained,
    square_panels,
    tasks_of,
)

_HEIGHT = 220
SIDES = (
    LineKind(key="lower", label="lower blocks reset", dash=(1, 0), shape="circle", mark="●"),
    LineKind(key="upper", label="upper blocks reset", dash=(6, 3), shape="triangle-up", mark="▲"),
)
QUANTITIES = {"score": "score of the task", "pretraining-loss": "pretraining loss (nats per token)"}
_MOST = 8


def swaps_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """Two panels per line; None if no layers were reset."""
    own = pretrained(frame)
    own = own[own["rewound"] != "one"]
    if own.empty:
        return None
    own = own.assign(depth=own.groupby(["series", "task"])["blocks"].transform("max"))
    by = ["depth", "quantity", "rewound", "blocks"]
    means = averaged(own, by)
    data = estimated(means, by)
    series = models.present(data)[:_MOST]
    stacks = [(one, depth, _named(one, depth, data)) for one in series for depth in depths_of(data, one)]
    panels = [
        Panel(spec=_chart(rows, one, axis), title=f"{named}: {axis.split(' (')[0]}")
        for one, depth, named in stacks
        for name, axis in QUANTITIES.items()
        if len(rows := of(data, series=one.key, depth=depth, quantity=name))
    ]
    if not panels:
        return None
    return ReportFigure(
        id="layer-swaps",
        question="Which layers does the task need, and which forgot pretraining?",
        answer=[
            text for one, depth, named in stacks for text in _sentences(of(means, series=one.key, depth=depth), named)
        ],
        panels=panels,
        caption=f"{bands(of(data, quantity='score'))} Means over tasks. Each panel has its own scale.",
        how_to_read=[
            "Across: how many blocks are reset to their weights before tuning, from none to all. Up: the task's score "
            "and the pretraining loss after that. Circles: reset from the bottom, where 0 resets the embeddings alone; "
            "triangles: reset from the top, where 0 resets nothing, or only the norm above the blocks.",
            "The dashed grey line is the model before tuning (for the score, with the tuned head). The line whose "
            "score falls first lost what the task needs; the one whose loss falls first regained what was forgotten. "
            "It would be surprising if the order did not matter.",
        ],
        method=SWAPS,
        data=data,
        tables=(LAYER_SWAPS.name,),
        findings=("adaptation:A-11",),
        payload={"layout": "wide", "apart": True},
    )


def depths_of(data: pd.DataFrame, series: Series) -> list[int]:
    """Numbers of blocks in a line's tuned models; generation tasks include the decoder's blocks."""
    return sorted({int(depth) for depth in of(data, series=series.key)["depth"]})


def _named(series: Series, depth: int, data: pd.DataFrame) -> str:
    return f"{series.label}, {depth} blocks" if len(depths_of(data, series)) > 1 else series.label


def with_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Extend both curves: down to no reset block (or only parts outside the blocks), and up to all blocks."""
    parts = []
    for side in SIDES:
        own = rows[rows["rewound"] == side.key]
        ends = ["all"] if 0 in own["blocks"].tolist() else ["none", "all"]
        parts += [part.assign(side=side.key) for part in (own, rows[rows["rewound"].isin(ends)])]
    return pd.concat(parts).sort_values(["side", "blocks"])


def _chart(rows: pd.DataFrame, series: Series, axis: str) -> dict[str, Any]:
    drawn = with_ends(rows)
    base = float(rows["baseline"].mean())
    blocks = sorted(int(number) for number in drawn["blocks"].unique())
    ends, scores = [-0.03 * max(blocks), 1.02 * max(blocks)], span(drawn[["low", "value", "high"]], base, margin=0.07)
    x = amount("x", "blocks", "blocks reset", ends, values=blocks, zero=None, format="d")
    at = {"x": x, "y": amount("y", "value", axis, scores)}
    names = [(one.mark, one.label, series.color) for one in SIDES] + [("– –", "model before tuning", "var(--control)")]
    stated = tips("side:N|reset", "blocks:Q|blocks", "shown:N|value")
    marks = lines(drawn, at, looks_of(SIDES, "side", series.color), touch=0, tooltip=stated, light=_plain)
    return finished([level(base, y=at["y"]), *marks, names_above(names)], _HEIGHT)


def _plain(opacity: float = 1.0) -> Constant:
    return Constant(opacity)


def _sentences(means: pd.DataFrame, name: str) -> list[str]:
    stated = []
    for quantity, words in (("pretraining-loss", "nats of pretraining loss"), ("score", "of score")):
        rows = of(means, quantity=quantity)
        none, all_of_them = (Samples.of(of(rows, rewound=side)) for side in ("none", "all"))
        if none and all_of_them:
            change = (none - all_of_them).estimate()
            verb = "costs" if quantity == "pretraining-loss" else "gains"
            stated.append(f"tuning {verb} {inline_text(change)} {words}")
        gap = _gap(rows)
        if gap and quantity == "pretraining-loss":
            regained = difference_text(gap.estimate(), "more", "less", "nats")
            stated.append(f"resetting upper blocks regains {regained} than resetting as many lower ones")
    return [f"In {name}, {'; '.join(stated)}."] if stated else []


def _gap(rows: pd.DataFrame) -> Samples | None:
    """Effect of lower minus upper blocks, beyond that of parts outside blocks; mean over shared numbers of blocks."""
    sides = [of(rows, rewound=side) for side in ("lower", "upper")]
    shared = set(sides[0]["blocks"]) & set(sides[1]["blocks"]) - {0}
    embeddings, norm = (side[side["blocks"] == 0] for side in sides)
    if not shared or embeddings.empty:
        return None
    lower, upper = (Samples.of(averaged(side[side["blocks"].isin(shared)], [])) for side in sides)
    outside = Samples.of(embeddings) - Samples.of(of(rows, rewound="none") if norm.empty else norm)
    return (lower - upper) - outside


CHANGES = {"score": "change of the task's score", "pretraining-loss": "pretraining loss regained (nats per token)"}


def single_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per line, tasks by blocks, one set each for score and loss; None if no single block was reset."""
    own = pretrained(frame)
    if "layer" not in own or not bool((own["rewound"] == "one").any()):
        return None
    means = averaged(own, ["task", "quantity", "rewound", "layer"])
    data = _changes(means)
    if data.empty:
        return None
    kinds = [name for name in CHANGES if len(of(data, quantity=name))]
    most = data.groupby("quantity")["value"].agg(lambda values: values.abs().max() or 1.0)
    rows = data.assign(
        label=data["task"],
        set=data["quantity"].map(kinds.index),
        text=[number(value, 2) for value in data["value"]],
        value=data["value"] / data["quantity"].map(most).astype(float),
    ).sort_values("layer", kind="stable")
    how = {"across": "layer", "title": "block", "quantity": "change", "strongest": 1.0, "signed": True}
    return ReportFigure(
        id="single-blocks",
        question="Which single block does the task need, and which one forgot?",
        answer=[_sentence(own, one.label) for one, own in models.each(data)],
        panels=square_panels(rows, models.present(data), labels=tasks_of(data), **how),
        caption=f"{bands(of(data, quantity='score'))} Blue: better after resetting that block alone to its weights "
        "before tuning; orange: worse. All panels share one scale for the score and one for the loss.",
        how_to_read=[
            "Each row is a task, each column a block; an encoder's blocks come before its decoder's. All other blocks, "
            "the embeddings and the task's head stay tuned. Choose score or pretraining loss above the picture.",
            "If resetting a block lowers the score, it learned what the others cannot replace; the block whose reset "
            "lowers the loss most had forgotten most. It would be surprising if a single block undid all of tuning.",
        ],
        method=SWAPS,
        data=data,
        tables=(LAYER_SWAPS.name,),
        **chosen_of([CHANGES[name] for name in kinds]),
    )


def _changes(means: pd.DataFrame) -> pd.DataFrame:
    """Effect of resetting a single block, per seed: rise of the score, fall of the loss."""
    keys = ["series", "task", "quantity"]
    rows = []
    for values, own in means.groupby(keys, sort=False):
        named = dict(zip(keys, values, strict=True))
        scale = _scale(own) if named["quantity"] == "score" else "any"
        none, single = Samples.of(of(own, rewound="none"), scale=scale), of(own, rewound="one")
        for layer, of_block in single.groupby("layer", sort=True):
            change = Samples.of(of_block, scale=scale) - none
            if change:
                sign = 1 if named["quantity"] == "score" else -1
                found = change.estimate() if sign > 0 else change.estimate().negated()
                first, second = change.halves()
                halves = {"first": sign * first, "second": sign * second.estimate().value}
                rows.append({**named, "layer": layer, **asdict(found), **halves, "shown": estimate_text(found)})
    return pd.DataFrame(rows)


def _scale(scores: pd.DataFrame) -> Scale:
    """The range of a task's score, from its intervals, since the table does not name the metric."""
    return "share" if bool((scores["low"].fillna(0) >= 0).all()) else "correlation"


def _sentence(data: pd.DataFrame, name: str) -> str:
    """The block whose reset costs the task most, and the one whose reset regains most; means over tasks.

    One half of the examples selects the block, the other gives the reported value.
    """
    stated = []
    (first_score, score), (first_regained, regained) = (
        [
            {int(str(layer)): float(own[half].mean()) for layer, own in of(data, quantity=name).groupby("layer")}
            for half in ("first", "second")
        ]
        for name in CHANGES
    )
    least = min(first_score, key=first_score.__getitem__, default=-1)
    most = max(first_regained, key=first_regained.__getitem__, default=-1)
    if score and score[least] < 0:
        stated.append(f"resetting block {least} alone costs the task most ({number(-score[least], 2)})")
    elif score:
        stated.append("resetting a single block costs the task nothing")
    if regained and regained[most] > 0:
        stated.append(f"resetting block {most} regains most of pretraining ({number(regained[most], 2)} nats)")
    clear = len(data[(data["low"] > 0) | (data["high"] < 0)])
    return f"In {name}, {' and '.join(stated)}; {clear} of {len(data)} changes are clear of 0."
