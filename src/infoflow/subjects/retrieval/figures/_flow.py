"""Attention knocked out from a block upward, heads that copy, and answers without them."""

from typing import Any

import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Panel
from infoflow.report._in_words import listed, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._chart import amount, tips
from infoflow.report.forms._lines import SHARE, control_lines, named_lines
from infoflow.report.forms._marks import Constant
from infoflow.subjects.adaptation.figures._rows import of, square_panels

from ..measures import EVIDENCE_ABLATION, EVIDENCE_FLOW, EVIDENCE_HEADS
from ._rows import FLOW, drawn, ends_of, every_exposure, seeds_note

_EDGES = ("mask→evidence", "mask→object", "query→evidence", "evidence→query", "mask→subject")
_HEIGHT = 230
_LEAST = 0.1  # minimum copy score of a head that counts as copying
_LEFT = {"gold": "right passage", "none": "no passage", "conflict": "a passage that contradicts"}
_CONTRADICTED = (
    " Where the passage contradicts training, the trained object counts as right: a line rises if those heads "
    "had suppressed memory."
)


def _of_facts(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows about all held-out facts, or about trained ones if there are none."""
    kinds = set(frame["facts"].astype(str))
    own = frame[frame["facts"] == next((kind for kind in ("held out", "trained") if kind in kinds), "")]
    return every_exposure(own)


def _knock_out(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own = of(frame, document="gold", method="knock-out", scope="upward", metric="p1", trained=True)
    own = _of_facts(own[own["variant"].isin(["", "pairs"])])
    own = own[own["what"].isin(list(_EDGES))]
    if own.empty:
        return None
    data = drawn(own, ["what", "layer"], models, (-1.0, 1.0))  # bounds of a difference of shares
    ends = ends_of(data, 0.0)
    return Drawn(
        data=data,
        panels=[Panel(spec=_edges(rows, ends), title=one.label) for one, rows in models.each(data)],
        answer=[_ways(rows, one.label) for one, rows in models.each(data)],
        caption=f"{seeds_note(data)} Right passage. Grey: the same number of random edges, mean over lines.",
    )


def _edges(rows: pd.DataFrame, ends: tuple[float, float]) -> dict[str, Any]:
    present = [what for what in _EDGES if what in set(rows["what"].astype(str))]
    shown = [Series(key=what, label=what, slot=index) for index, what in enumerate(present)]
    layers = sorted({int(layer) for layer in rows["layer"]})
    title = "knocked out from this block upward"
    x = amount("x", "layer", title, [layers[0] - 0.15, layers[-1] + 0.15], values=layers, format="d")
    at = {"x": x, "y": amount("y", "value", "right answers lost", ends)}
    random = rows.groupby("layer", as_index=False)["baseline"].mean().rename(columns={"baseline": "value"})
    grey = random.assign(low=random["value"], high=random["value"], group="random edges")
    how = {
        "light": lambda opacity=1.0: Constant(opacity),  # all lines belong to one model, so none is dimmed
        "beneath": control_lines(grey, at, band=0, by=""),
        "names": [("– –", "random edges", "var(--control)")],
        "tooltip": tips("what:N|forbidden", "layer:Q|from block", "shown:N|lost"),
    }
    return named_lines(rows, at, shown, _HEIGHT, field="what", size=34, touch=0, **how)


def _ways(rows: pd.DataFrame, name: str) -> str:
    first = rows[rows["layer"] == rows["layer"].min()].sort_values("value", ascending=False)
    said = [f"{row.what} costs {number(100 * row.value, 0)} points" for row in first.itertuples()]
    return f"In {name}, if knocked out in all blocks, {listed(said)}."


def _heads(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    """Copy scores by layer and head, one panel per line; None if no heads were scored."""
    own = _of_facts(of(frame, metric="copy", document="gold", trained=True, variant=""))
    if own.empty:
        return None
    data = drawn(own, ["layer", "head"], models, SHARE)
    layers = sorted({int(layer) for layer in data["layer"]}, reverse=True)
    shown = data.assign(
        label=[f"layer {int(layer)}" for layer in data["layer"]],
        text=[f"{100 * value:.0f}" for value in data["value"]],
        shown=data["shown"] + [f"; random document {number(base, 2)}" for base in data["baseline"]],
        set=0,
    ).sort_values("head", kind="stable")
    num, labels = _num_copying(own), [f"layer {layer}" for layer in layers]
    how = {"across": "head", "labels": labels, "title": "head", "quantity": "copy score"}
    return Drawn(
        data=data,
        panels=square_panels(shown, models.present(data), **how),
        answer=[_copiers(rows, num[one.key], one.label) for one, rows in models.each(data)],
        caption=f"{seeds_note(data)} Numbers, where they fit: 100 × the copy score. All panels share one scale.",
    )


def _num_copying(own: pd.DataFrame) -> dict[str, float]:
    """Each line's number of copying heads, counted within each seed: heads do not correspond between seeds."""
    by_seed = own.assign(copies=own["value"] >= _LEAST).groupby(["series", "seed"])["copies"].sum()
    means = by_seed.groupby("series").mean()
    return dict(zip(map(str, means.index), map(float, means), strict=True))


def _copiers(rows: pd.DataFrame, num: float, name: str) -> str:
    best = rows.loc[rows["value"].idxmax()]
    many, counted = int(rows["seeds"].max()) > 1, number(num, 0 if num == int(num) else 1)
    return (
        f"In {name}, {counted} of {len(rows)} heads copy in a tenth of the questions or "
        f"more{', mean over seeds' if many else ''}; head {int(best['layer'])}.{int(best['head'])} (layer.head) "
        "copies most."
    )


def _ablation(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    """Correct answers over the number of removed heads, one panel per line and document; None if there are none."""
    own = every_exposure(of(frame, metric="p1", trained=True, variant=""))
    own = own[own["document"].isin(list(_LEFT))]
    own = own[own["facts"] == ("trained" if "trained" in set(own["facts"].astype(str)) else "held out")]
    if own.empty:
        return None
    data = drawn(own, ["document", "removed"], models, SHARE)
    ends = ends_of(data, 0.0, 1.0)
    contradicted = _CONTRADICTED if "conflict" in set(data["document"].astype(str)) else ""
    return Drawn(
        data=data,
        panels=[
            Panel(spec=_removed(of(data, document=name), models, ends), title=title)
            for name, title in _LEFT.items()
            if name in set(data["document"].astype(str))
        ],
        answer=[_without(rows, one.label) for one, rows in models.each(data)],
        caption=f"{seeds_note(data)} Trained facts, where measured. Dashed: the same number of random other heads.",
        facts={"contradicted": contradicted},
    )


def _removed(rows: pd.DataFrame, models: ModelSelection, ends: tuple[float, float]) -> dict[str, Any]:
    most = int(rows["removed"].max())
    ticks = min(5, most)  # Vega labels half heads if 5 ticks cover one or two heads, even with a minimum step
    across = [-0.03 * most, 1.03 * most]
    x = amount("x", "removed", "heads removed", across, format="d", tickMinStep=1, ticks=ticks)
    at = {"x": x, "y": amount("y", "value", "right answers", ends)}
    grey = rows.assign(value=rows["baseline"], low=rows["baseline"], high=rows["baseline"]).drop(columns="shown")
    how = {
        "beneath": control_lines(grey, at, band=0),
        "names": [("– –", "random heads", "var(--control)")],
        "tooltip": tips("name:N|trained as", "removed:Q|heads removed", "shown:N|right answers"),
    }
    return named_lines(rows, at, models.present(rows), _HEIGHT, size=34, touch=0, **how)


def _without(rows: pd.DataFrame, name: str) -> str:
    gold = of(rows, document="gold").sort_values("removed")
    if len(gold) < 2:
        return ""
    last = gold.iloc[-1]
    shares = (gold["value"].iloc[0], last["value"], last["baseline"])
    whole, left, random = (number(100 * float(share), 0) for share in shares)
    return (
        f"In {name}, {whole}% of the answers are right with the passage; without the {int(last['removed'])} heads "
        f"that copy most {left}%, without as many random heads {random}%."
    )


KNOCK_OUT = DeclaredFigure(
    name="retrieval/knock-outs",
    id="evidence-upward",
    question="How does evidence reach the answer?",
    how_to_read=(
        "Each line is one kind of attention, knocked out from the block on the horizontal axis upward. Up: the "
        "share of right answers that is lost. Where a line reaches the grey one, the evidence has already passed.",
        "evidence→query is the passage attending to the question, which lets a reader find the sentence with the "
        "answer; mask→subject costs nothing if each passage is about one entity. It would be surprising if "
        "random edges cost as much as mask→evidence.",
    ),
    method=FLOW,
    tables=(EVIDENCE_FLOW.name,),
    findings=("retrieval:R-15",),
    payload={"apart": True},
    draw=_knock_out,
)

HEADS = DeclaredFigure(
    name="retrieval/heads",
    id="evidence-heads",
    question="Which heads point at the answer in the passage?",
    how_to_read=(
        "Each square is a head, with the top layer first. Its copy score is the share of questions in which its "
        "largest weight from the mask lies on the answer in the passage and the model gives that answer.",
        "Hover to see the control: the same with a random document. Different seeds have their copying heads in "
        "different places; means over seeds blur them, so these heads are counted in each seed. It would be "
        "surprising if most heads copied.",
    ),
    method=FLOW,
    tables=(EVIDENCE_HEADS.name,),
    findings=("retrieval:R-16",),
    payload={"layout": "wide", "apart": True},
    draw=_heads,
)

ABLATION = DeclaredFigure(
    name="retrieval/ablation",
    id="evidence-ablation",
    question="Which answers are lost without the heads that copy?",
    how_to_read=(
        "Across: how many heads are removed, those that copy most first. Up: right answers that remain. Dashed "
        "grey: random other heads, mean over five draws.",
        "Heads that carry only evidence cost answers in the first panel and none in the second.{contradicted} It "
        "would be surprising if random heads cost as much.",
    ),
    method=FLOW,
    tables=(EVIDENCE_ABLATION.name,),
    findings=("retrieval:R-16", "retrieval:R-17"),
    payload={"apart": True},
    draw=_ablation,
)
