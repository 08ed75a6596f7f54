"""Figures of head weights: copying and preferred offsets of each head, and which heads compose."""

import math
from functools import partial
from typing import Any

import pandas as pd

from infoflow.heads import HEAD_PATTERNS, HEAD_POSITIONAL
from infoflow.report._curves import first_seed
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, Section, names_of
from infoflow.report._model_tables import ModelTables
from infoflow.report.forms._chart import color_if, finished, tips
from infoflow.report.forms._marks import channel, draw
from infoflow.report.forms._rows import cells, signed_squares, squares

from .measures import HEAD_COMPOSITION, HEAD_WEIGHTS

_METHOD = Method(
    id="head-weights",
    title="Heads by their weights",
    text="""
    Copying: Σλ / Σ|λ| over the eigenvalues λ of <i>E W</i><sub>V</sub><i>W</i><sub>O</sub><i>U</i>, from tokens to
    logits. Offset: the share of positions whose best key, by what positions add to the embeddings, lies at that offset.
    Composition: the Frobenius norm of the product of two heads' matrices over the product of their norms (Elhage et al.
    2021). Controls: random matrices with the same singular values. The gain of norms is folded in; their division,
    biases and other blocks are left out.
    """,
)
_ROW, _SHOWN = 20, 12
_HEAD = ["stack", "layer", "head"]


def _map(own: pd.DataFrame, ends: tuple[float, float], text: str = "") -> dict[str, Any]:
    low, _ = ends
    layers = sorted((int(layer) for layer in own["layer"].unique()), reverse=True)
    place = {"x": cells("x", "head", "head"), "y": cells("y", "layer", "layer", layers)}
    columns = ["layer", "head", "offset", "value", "baseline", "control_low", "control_high"]
    tooltip = tips(
        "layer:O|layer", "head:O|head", "value:Q|value|.2f", "baseline:Q|control|.2f", "control_high:Q|at most|.2f",
        *(["offset:O|offset"] if text else []),
    )  # fmt: skip
    rows = own[columns].round(4)
    if low < 0:
        marks = signed_squares(rows, field="value", ends=ends, text=None, tooltip=tooltip, **place)
    else:
        marks = squares(rows, strength="value", ends=ends, text=None, tooltip=tooltip, **place)
    if text:
        clear = rows[rows["value"] > rows["control_high"]]
        ink = color_if("datum.value > 0.55", "var(--paper)", "var(--ink)")
        marks.append(draw("text", clear, place, fontSize=9, color=ink, text=text))
    return finished(marks, max(_ROW * len(layers), 60))


def _weights(frame: pd.DataFrame, tables: ModelTables, statistic: str, drawing: dict[str, Any]) -> Drawn | None:
    frame = frame.loc[frame["statistic"] == statistic]
    panels, answer = [], []
    for series in tables.models.present(frame):
        own = first_seed(frame[(frame["series"] == series.key) & frame["trained"]])
        for stack, rows in own.groupby("stack"):
            panels.append(Panel(spec=_map(rows, **drawing), title=f"{series.label}, {stack} self-attention"))
        best = own.loc[own["value"].idxmax()] if len(own) else None
        if best is not None:
            above = int((own["value"] > own["control_high"]).sum())
            looks = f", at offset {int(best['offset'])}" if statistic == "preferred" else ""
            answer.append(
                f"{above} of {len(own)} heads of {series.label} exceed the control; the highest is head "
                f"{int(best['head'])} of layer {int(best['layer'])} with {best['value']:.2f}{looks} (control "
                f"{best['baseline']:.2f}, at most {best['control_high']:.2f} in 97.5% of draws)."
            )
            answer.append(_on_text(own, tables, series.key, statistic))
    if not panels:
        return None
    caption = "The first seed of each model. Weights are not a sample: only the control has an interval."
    return Drawn(data=frame, panels=panels, answer=answer, caption=caption)


def _on_text(own: pd.DataFrame, tables: ModelTables, series: str, statistic: str) -> str:
    """The rank correlation over heads with what the same heads do on text, if that was measured."""
    copying = statistic == "copying"
    text = tables.get(HEAD_PATTERNS.name if copying else HEAD_POSITIONAL.name)
    if text is None:
        return ""
    text = text[(text["series"] == series) & (text["kind"] == "self")]
    if copying:
        text, what = text[(text["pattern"] == "copying") & (text["score"] == "positive")], "copying on random tokens"
    else:
        what = "the share of queries that look at one offset in text"
    keys = ["series", "seed", "trained", *_HEAD]
    both = own.merge(text.groupby(keys, as_index=False)["value"].max(), on=keys, suffixes=("", "_text"))
    rho = float(both["value"].corr(both["value_text"], method="spearman")) if len(both) > 3 else math.nan
    return "" if math.isnan(rho) else f"Over its heads, the rank correlation with {what} is {rho:.2f}."


def _composition(frame: pd.DataFrame, tables: ModelTables) -> Drawn:
    panels, answer = [], []
    for series in tables.models.present(frame):
        own = first_seed(frame[(frame["series"] == series.key) & frame["trained"]])
        top = own.assign(ratio=own["value"] / own["baseline"]).nlargest(_SHOWN, "ratio")
        if top.empty:
            continue
        names = (
            _place(top, "layer", "head") + " reads " + _place(top, "earlier_layer", "earlier_head") + " by "
            + top["via"].astype(str)
        )  # fmt: skip
        panels.append(Panel(spec=_bars(top.assign(pair=names)), title=series.label))
        best = top.iloc[0]
        answer.append(
            f"Strongest in {series.label}: head {int(best['head'])} of layer {int(best['layer'])} reads head "
            f"{int(best['earlier_head'])} of layer {int(best['earlier_layer'])} by its {best['via']}, "
            f"{best['ratio']:.1f} times as much as with random rotations (score {best['value']:.2f})."
        )
    return Drawn(
        data=frame,
        panels=panels,
        answer=answer,
        caption="The first seed of each model. Heads are layer.head. The dashed line, 1, is random rotations.",
    )


def _place(rows: pd.DataFrame, layer: str, head: str) -> pd.Series:
    return rows[layer].astype(str) + "." + rows[head].astype(str)


def _bars(top: pd.DataFrame) -> dict[str, Any]:
    rows = top[["pair", "ratio", "value", "baseline", "z"]].round(4)
    x = channel("x", "ratio:Q", title="score / control", scale={"zero": True})
    y = channel("y", "pair:N", title=None, sort=rows["pair"].tolist(), axis={"labelLimit": 220})
    tooltip = tips("pair:N|pair", "value:Q|score|.3f", "baseline:Q|control|.3f", "z:Q|z|.0f")
    one = pd.DataFrame({"ratio": [1.0]})
    marks = [
        draw("bar", rows, x=x, y=y, tooltip=tooltip, color="var(--heat-2)"),
        draw("rule", one, x="ratio:Q", color="var(--control)", strokeDash=[4, 3]),
    ]
    return finished(marks, _ROW * len(rows) + 12)


_ABOUT: dict[str, Any] = {"method": _METHOD, "tables": (HEAD_WEIGHTS.name,)}
COPYING = DeclaredFigure(
    name="head-weights/copying",
    id="copying-weights",
    question="Which heads copy, by their weights?",
    how_to_read=(
        "Each square is a head. A head at 1 (dark blue) raises the logit of whatever token it reads; a head at −1 "
        "(dark orange) lowers it. Random matrices with the same singular values score near 0.",
        "Only the direct path from embeddings to logits counts, so the score says less about heads in the middle.",
    ),
    draw=partial(_weights, statistic="copying", drawing={"ends": (-1.0, 1.0)}),
    findings=("weights:W1",),
    **_ABOUT,
)
PREFERRED = DeclaredFigure(
    name="head-weights/offset",
    id="offset-weights",
    question="Which heads look at a fixed offset, by their weights?",
    how_to_read=(
        "Each square is a head; the darker, the larger the share of positions whose best key, by the weights for "
        "positions, lies at the head's best offset. The offset is written where the share exceeds that of 97.5% of "
        "random matrices: −1 is the previous token.",
        "Models with rotary or relative positions add no positions to their embeddings, and are not shown.",
    ),
    draw=partial(_weights, statistic="preferred", drawing={"ends": (0.0, 1.0), "text": "offset:O"}),
    findings=("weights:W2",),
    **_ABOUT,
)
COMPOSITION = DeclaredFigure(
    name="head-weights/composition",
    id="head-composition",
    question="Which heads read what other heads write?",
    how_to_read=(
        "Each bar is a pair of heads: the later one reads what the earlier one writes, to decide where it looks "
        "(query), which tokens it finds (key), or what it moves (value). Bars end at the score divided by that "
        "of random rotations.",
    ),
    method=_METHOD,
    tables=(HEAD_COMPOSITION.name,),
    draw=_composition,
    findings=("weights:W3",),
)
_FIGURES = (COPYING, PREFERRED, COMPOSITION)
_SECTION = Section(
    id="head-weights",
    claims=("weights",),
    title="What do heads do by their weights alone?",
    lead="The matrices of a head say what it would do with any text: copy, look at a fixed offset, read what an "
    "earlier head wrote. On text, other blocks take part.",
    names=names_of(_FIGURES),
)


def head_weights_section(tables: ModelTables) -> Section | None:
    """The section, or None if the run has neither table."""
    frames = tables.some((HEAD_WEIGHTS.name, HEAD_COMPOSITION.name))
    drawn = [one.of(frames[one.tables[0]], tables) for one in _FIGURES if one.tables[0] in frames]
    return _SECTION.drawn_with(drawn, tables.models, frames.values())


SECTIONS = ((134, _SECTION, head_weights_section),)
