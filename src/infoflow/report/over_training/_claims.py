"""From which update on each claim holds: claims by checkpoints."""

import math
from typing import Any

import altair as alt
import pandas as pd

from infoflow.findings import movement, verdict_runs

from .._figure import Method, Panel, ReportFigure
from .._numbers import number
from .._summary import VERDICTS, verdict_verb
from ..forms._chart import finished, tips, values_of
from ..forms._grid import cells
from ..forms._time_axis import short

CLAIMS = Method(
    id="findings-over-training",
    title="Findings over training",
    text="""
    Every claim about representations and heads is tested on each checkpoint as on the finished model: the same tables,
    thresholds and controls. Verdicts of neighbouring checkpoints share sentences and seeds, so that a single checkpoint
    that differs from both neighbours says little.
    """,
)
_COLORS = {
    "holds": "var(--above)",
    "fails": "var(--below)",
    "undetermined": "var(--control)",
    "not testable here": "var(--grid)",
}


def claims_figure(findings: pd.DataFrame | None, moments: list[int]) -> ReportFigure | None:
    """A row for each claim that could be tested at some checkpoint; None where no claims were."""
    if findings is None:
        return None
    table = findings[findings["update"] >= 0].drop_duplicates(["id", "update"]).sort_values("update", kind="stable")
    tested = table.loc[table["verdict"] != "not testable here", "id"]
    shown = table[table["id"].isin(set(tested))]
    if shown.empty:
        return None
    rows = [_row(str(id), own) for id, own in shown.groupby("id", sort=False)]
    updates = sorted({int(update) for update in shown["update"]})
    left = len(set(table["id"])) - len(rows)
    untested = f" {left} claims could not be tested at any checkpoint." if left else ""
    return ReportFigure(
        id="findings-over-training",
        question="Since when does each claim hold?",
        answer=[_sentence(rows)],
        panels=[Panel(spec=_chart(shown, updates))],
        caption=f"{len(updates)} checkpoints, from update {updates[0]:,} to {updates[-1]:,}.{untested}",
        how_to_read=[
            "A row is a claim, a square a checkpoint, from the first to the last (at equal distances): ✓ it holds, ✗ "
            "it fails, ? the interval includes the threshold, empty: not testable there. Point at a square for the "
            "effect.",
            "A claim that holds before the first update needs no training, whatever it says about trained models.",
        ],
        method=CLAIMS,
        data=table.drop(columns=["effects"], errors="ignore"),
        tables=("findings_over_training",),
        template="claims.html.jinja",
        payload={"rows": rows, "ticks": _ticks(updates)},
    )


def _ticks(updates: list[int]) -> list[str]:
    """The updates of some columns, the first and the last among them; "" of the others."""
    every = max(1, math.ceil(len(updates) / 8))
    last = len(updates) - 1
    shown = [
        (place % every == 0 and (last - place >= every or place == last)) or place == last
        for place in range(len(updates))
    ]
    return [short(update) if on else "" for update, on in zip(updates, shown, strict=True)]


def _row(id: str, own: pd.DataFrame) -> dict[str, Any]:
    last = own.iloc[-1]
    return {
        "id": id,
        "claim": str(last["claim"]),
        "since": since(own),
        "verdict": str(last["verdict"]),
        "cells": [_cell(row) for row in own.to_dict("records")],
    }


def _cell(row: dict[str, Any]) -> dict[str, Any]:
    verdict, update = str(row["verdict"]), int(row["update"])
    effect, low, high = (float(row.get(name, float("nan"))) for name in ("effect", "low", "high"))
    told = ""
    if effect == effect:
        interval = f" ({number(low)} to {number(high)})" if low == low else ""
        told = f": {number(effect)} {row.get('unit') or ''}".rstrip() + interval
    return {
        "update": update,
        "verdict": verdict,
        "symbol": VERDICTS.get(verdict, "?") if verdict != "not testable here" else "",
        "told": f"update {update:,}: {verdict}{told}",
    }


def since(own: pd.DataFrame) -> str:
    """`holds since update 512`, `held from 64 to 256; fails since 500`, ...: from verdicts by update."""
    *earlier, last = verdict_runs(own)
    told = _last(last.verdict, last.first, throughout=not earlier)
    held = [run for run in earlier if run.verdict == "holds"]
    if last.verdict != "holds" and held:
        first, end = held[-1].first, held[-1].last
        told = f"held {f'at update {first:,}' if first == end else f'from update {first:,} to {end:,}'}; {told}"
    elif last.verdict == "holds" and held:
        told = f"{told} for good, first at {held[0].first:,}"
    return f"{told}{_growth(own) if last.verdict == 'holds' else ''}"


def _last(verdict: str, start: int, throughout: bool) -> str:
    words = {"holds": "holds", "fails": "fails", "undetermined": "undetermined"}.get(verdict, "not testable")
    if throughout:
        return f"{words} at every checkpoint"
    return f"{words} since update {start:,}"


def _growth(own: pd.DataFrame) -> str:
    """What `findings_since` says of the effect over the last checkpoints."""
    if not {"effect", "low", "high"} <= set(own):
        return ""
    _, moves = movement(own)
    return {"grows": "; its effect still grows", "falls": "; its effect shrinks again"}.get(moves, "")


def _sentence(rows: list[dict[str, Any]]) -> str:
    holds = [row for row in rows if row["verdict"] == "holds"]
    lost = [
        row for row in rows if row["verdict"] != "holds" and any(cell["verdict"] == "holds" for cell in row["cells"])
    ]
    always = sum(all(cell["verdict"] == "holds" for cell in row["cells"]) for row in rows)
    count = "one claim" if len(rows) == 1 else f"{len(rows)} claims"
    held = f"{len(holds) or 'none'} {verdict_verb('holds', len(holds))}"
    parts = [f"Of {count} that could be tested {held} at the end of training"]
    if always:
        parts.append(f"{always} of them at every checkpoint")
    if lost:
        parts.append(f"{len(lost)} held in between and no longer {'do' if len(lost) > 1 else 'does'}")
    return f"{'; '.join(parts)}."


def _chart(shown: pd.DataFrame, updates: list[int]) -> dict[str, Any]:
    ids = list(dict.fromkeys(shown["id"].astype(str)))
    symbols = shown["verdict"].map(VERDICTS).where(shown["verdict"] != "not testable here", "")
    rows = shown[["id", "update", "verdict"]].assign(symbol=symbols)
    place = {
        "x": cells(alt.X, "update", "update", updates, labelAngle=-60, labelOverlap=True),
        "y": cells(alt.Y, "id", None, ids, labelLimit=140),
    }
    base = alt.Chart(rows)
    color = alt.Color(**values_of("verdict", list(_COLORS), list(_COLORS.values())))
    marks = base.mark_rect(stroke="var(--paper)", strokeWidth=1).encode(
        **place, color=color, tooltip=tips("id:N", "verdict:N")
    )
    return finished(
        [marks, base.mark_text(fontSize=9, color="var(--paper)").encode(**place, text=alt.Text("symbol:N"))],
        18 * len(ids),
    )
