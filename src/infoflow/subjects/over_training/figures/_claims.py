"""The update from which each claim holds, and the results of the checkpoint checks."""

import math
from typing import Any

import pandas as pd

from infoflow.findings import FINDINGS_TABLE
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel
from infoflow.report._in_words import counted, listed, number
from infoflow.report._summary import VERDICTS, verdict_verb
from infoflow.report.forms._chart import by_key, finished, tips
from infoflow.report.forms._marks import draw
from infoflow.report.forms._over_time import short
from infoflow.report.forms._rows import cells

from ..claims._over_training import movement, verdict_runs
from ..measures import CHECKPOINT_CHECKS
from ._course import CheckpointTables

CLAIMS = Method(
    id="findings-over-training",
    title="Findings over training",
    text="""
    Every claim about representations and heads is tested on each checkpoint just as on the finished model, with the
    same tables, thresholds and controls. Verdicts at neighbouring checkpoints share sentences and seeds, so a single
    checkpoint that differs from both neighbours says little.
    """,
)
_UNTESTED = "not testable here"
_COLORS = {"holds": "var(--above)", "fails": "var(--below)", "undetermined": "var(--control)", _UNTESTED: "var(--grid)"}
CHECKS = Method(
    id="checkpoint-checks",
    title="Checks of checkpoints",
    text="""
    Before anything is measured, the checkpoints are compared with each other. The checks look for equal weights under
    two names (K1, K2), a checkpoint far from both neighbours (K3), two swapped checkpoints (K4), a series that does
    not continue its own start (K5), a jump of the loss (K6), numbers that are not finite (K7), a different shape,
    vocabulary or tokenizer (K8), missing tensors (K9), mixed precision (K10), names that contradict what was saved
    (K11) and gaps (K12). Distances are Frobenius norms over matrices only. Checkpoints with errors are left out of
    the other figures unless requested.
    """,
)
_LEVELS = {"error": "✗", "warning": "!", "note": "·"}


def _claims(course: CheckpointTables) -> Drawn | None:
    """One row per claim that could be tested at some checkpoint."""
    findings = course.tables.findings_over_training()
    if findings is None:
        return None
    table = findings[findings["update"] >= 0].drop_duplicates(["id", "update"]).sort_values("update", kind="stable")
    tested = table.loc[table["verdict"] != _UNTESTED, "id"]
    shown = table[table["id"].isin(set(tested))]
    if shown.empty:
        return None
    rows = [_row(str(id), own) for id, own in shown.groupby("id", sort=False)]
    updates = sorted({int(update) for update in shown["update"]})
    left = len(set(table["id"])) - len(rows)
    untested = f" {left} claims could not be tested at any checkpoint." if left else ""
    return Drawn(
        data=table.drop(columns=["effects"], errors="ignore"),
        panels=[Panel(spec=_chart(shown, updates))],
        answer=[_sentence(rows)],
        caption=f"{len(updates)} checkpoints, from update {updates[0]:,} to {updates[-1]:,}.{untested}",
        payload={"rows": rows, "ticks": _ticks(updates)},
    )


def _ticks(updates: list[int]) -> list[str]:
    """Column labels: the update of some columns, including the first and the last; "" for all other columns."""
    every, last = max(1, math.ceil(len(updates) / 8)), len(updates) - 1
    return [
        short(update) if index == last or (index % every == 0 and last - index >= every) else ""
        for index, update in enumerate(updates)
    ]


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
    effect, low, high = (float(row[name]) for name in ("effect", "low", "high"))
    stated = ""
    if effect == effect:
        interval = f" ({number(low)} to {number(high)})" if low == low else ""
        stated = f": {number(effect)} {row['unit'] or ''}".rstrip() + interval
    return {
        "update": update,
        "verdict": verdict,
        "symbol": VERDICTS[verdict] if verdict != _UNTESTED else "",
        "stated": f"update {update:,}: {verdict}{stated}",
    }


def since(own: pd.DataFrame) -> str:
    """When a claim holds, in words: `holds since update 512`, `held from 64 to 256; fails since 500`, ..."""
    *earlier, last = verdict_runs(own)
    words = "not testable" if last.verdict == _UNTESTED else last.verdict
    stated = f"{words} since update {last.first:,}" if earlier else f"{words} at every checkpoint"
    held = [run for run in earlier if run.verdict == "holds"]
    if last.verdict != "holds" and held:
        first, end = held[-1].first, held[-1].last
        stated = f"held {f'at update {first:,}' if first == end else f'from update {first:,} to {end:,}'}; {stated}"
    elif last.verdict == "holds" and held:
        stated = f"{stated} for good, first at {held[0].first:,}"
    if last.verdict != "holds":
        return stated
    _, moves = movement(own)
    return stated + {"grows": "; its effect still grows", "falls": "; its effect shrinks again"}.get(moves, "")


def _sentence(rows: list[dict[str, Any]]) -> str:
    holds = [row for row in rows if row["verdict"] == "holds"]
    lost = [
        row for row in rows if row["verdict"] != "holds" and any(cell["verdict"] == "holds" for cell in row["cells"])
    ]
    always = sum(all(cell["verdict"] == "holds" for cell in row["cells"]) for row in rows)
    count = "one claim" if len(rows) == 1 else f"{len(rows)} claims"
    held = f"{len(holds) or 'none'} {verdict_verb('holds', len(holds))}"
    parts = [f"Of {count} that could be tested, {held} at the end of training"]
    if always:
        parts.append(f"{always} of them at every checkpoint")
    if lost:
        parts.append(f"{len(lost)} held in between and no longer {'do' if len(lost) > 1 else 'does'}")
    return f"{'; '.join(parts)}."


def _chart(shown: pd.DataFrame, updates: list[int]) -> dict[str, Any]:
    ids = list(dict.fromkeys(shown["id"].astype(str)))
    symbols = shown["verdict"].map(VERDICTS).where(shown["verdict"] != _UNTESTED, "")
    rows = shown[["id", "update", "verdict"]].assign(symbol=symbols)
    place = {
        "x": cells("x", "update", "update", updates, labelAngle=-60, labelOverlap=True),
        "y": cells("y", "id", None, ids, labelLimit=140),
    }
    color, paper = by_key("color", "verdict", list(_COLORS), list(_COLORS.values())), "var(--paper)"
    tooltip = tips("id:N", "verdict:N")
    squares = draw("rect", rows, place, stroke=paper, strokeWidth=1, color=color, tooltip=tooltip)
    return finished([squares, draw("text", rows, place, fontSize=9, color=paper, text="symbol:N")], 18 * len(ids))


def _checks(course: CheckpointTables) -> Drawn | None:
    """One row per problem, the most severe first."""
    frame = course[CHECKPOINT_CHECKS.name]
    if frame.empty:
        return None
    rows = frame.assign(rank=frame["level"].map(list(_LEVELS).index))
    rows = rows.sort_values(["rank", "series", "update"], kind="stable")
    counts = frame["level"].value_counts()
    return Drawn(
        data=rows.drop(columns=["rank", "series"]),
        panels=[],
        answer=[f"{listed([counted(counts[level], level) for level in _LEVELS if level in counts]).capitalize()}."],
        caption="One line per checkpoint; the methods section explains the checks.",
        payload={"rows": [_complaint(course, row) for row in rows.to_dict("records")]},
    )


def _complaint(course: CheckpointTables, row: dict[str, Any]) -> dict[str, Any]:
    ends = "" if pd.isna(row["limit"]) else f" (limit {number(float(row['limit']))})"
    series = course.models[row["series"]]
    return {
        "level": row["level"],
        "symbol": _LEVELS[row["level"]],
        "check": row["check"],
        "model": series.label if course.models.by == "model" else f"{series.label}, seed {row['seed']}",
        "slot": series.slot,
        "update": f"{int(row['update']):,}" if row["update"] >= 0 else "all",
        "message": row["message"],
        "value": "" if pd.isna(row["value"]) else f"{number(float(row['value']))}{ends}",
    }


def suspects(course: CheckpointTables) -> str:
    """The checkpoints that were left out, in words; "" if none were."""
    frame = course[CHECKPOINT_CHECKS.name]
    if frame.empty:
        return ""
    errors = frame[frame["level"] == "error"].drop_duplicates(["series", "update"])
    parts = []
    for series, own in course.each(errors):
        updates = [f"{int(update):,}" if update >= 0 else "all" for update in sorted(set(own["update"]))]
        parts.append(f"{series.label} {listed(updates)}")
    return f"Suspect checkpoints (see the last figure): {'; '.join(parts)}." if parts else ""


FINDINGS = DeclaredFigure(
    name="over-training/claims",
    id="findings-over-training",
    question="When did each claim start to hold?",
    how_to_read=(
        "Each row is a claim, each square a checkpoint, from the first to the last, equally spaced. ✓: the claim "
        "holds; ✗: it fails; ?: the interval includes the threshold; empty: not testable there. Hover over a "
        "square for the effect.",
        "A claim that holds before the first update needs no training.",
    ),
    method=CLAIMS,
    tables=(FINDINGS_TABLE.at_checkpoints,),
    template="claims.html.jinja",
    draw=_claims,
)
COMPLAINTS = DeclaredFigure(
    name="over-training/checkpoint-checks",
    id="checkpoint-checks",
    question="Are the checkpoints what their names say?",
    how_to_read=(
        "An error (✗) means that a checkpoint is not what its name says. The other figures leave it out or, if "
        "it was requested anyway, draw it hollow. A warning (!) may have a harmless cause, such as strong weight "
        "decay. A note (·) explains a pattern, such as updates skipped at the start.",
    ),
    method=CHECKS,
    tables=(CHECKPOINT_CHECKS.name,),
    template="checks.html.jinja",
    draw=_checks,
)
