"""What the checks of a series of checkpoints found, the worst first."""

from typing import Any

import pandas as pd

from .._figure import Method, ReportFigure
from .._numbers import listed, number
from ._course import CheckpointTables

CHECKS = Method(
    id="checkpoint-checks",
    title="Checks of checkpoints",
    text="""
    Before anything is measured, checkpoints are compared with each other: equal weights under two names (K1, K2), one
    that lies far from both its neighbours (K3), two that were exchanged (K4), a series that does not descend from its
    start (K5), a loss that jumps (K6), numbers that are not finite (K7), another shape, vocabulary or tokenizer (K8),
    missing tensors (K9), mixed precision (K10), names that contradict what was saved (K11), gaps (K12). Distances are
    Frobenius norms over matrices only. Errors are left out of the other figures unless asked for.
    """,
)
_LEVELS = {"error": "✗", "warning": "!", "note": "·"}


def checks_figure(course: CheckpointTables) -> ReportFigure | None:
    """A row for each complaint; None where nothing was checked."""
    frame = course["checkpoint_checks"]
    if frame.empty:
        return None
    rank = frame["level"].map({level: place for place, level in enumerate(_LEVELS)}).fillna(len(_LEVELS))
    rows = frame.assign(rank=rank).sort_values(["rank", "series", "update"], kind="stable")
    counts = {level: int((frame["level"] == level).sum()) for level in _LEVELS}
    told = [f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts.items() if count]
    return ReportFigure(
        id="checkpoint-checks",
        question="Are the checkpoints what their names say?",
        answer=[f"{listed(told).capitalize()}."],
        panels=[],
        caption="Each line is about one checkpoint; limits are those of the method.",
        how_to_read=[
            "An error (✗) means that a checkpoint is not what it is called: it was left out or, where it was asked for "
            "all the same, is drawn hollow in the other figures. A warning (!) may have an innocent reason, such as "
            "strong weight decay. A note (·) explains a pattern, such as updates that were skipped at the start.",
        ],
        method=CHECKS,
        data=rows.drop(columns=["rank", "series"]),
        tables=("checkpoint_checks",),
        template="checks.html.jinja",
        payload={"rows": [_row(course, row) for row in rows.to_dict("records")]},
    )


def _row(course: CheckpointTables, row: dict[str, Any]) -> dict[str, Any]:
    value, limit = (row.get(name, float("nan")) for name in ("value", "limit"))
    known = not pd.isna(value)
    series = course.models[row["series"]]
    return {
        "level": str(row["level"]),
        "symbol": _LEVELS.get(str(row["level"]), "?"),
        "check": str(row["check"]),
        "model": series.label if course.models.by == "model" else f"{series.label}, seed {row['seed']}",
        "slot": series.slot,
        "update": f"{int(row['update']):,}" if row["update"] >= 0 else "all",
        "message": str(row["message"]),
        "value": f"{number(float(value))}{'' if pd.isna(limit) else f' (limit {number(float(limit))})'}"
        if known
        else "",
    }


def suspects(course: CheckpointTables) -> str:
    """In words, the checkpoints that were left out; "" where none were."""
    frame = course["checkpoint_checks"]
    if frame.empty:
        return ""
    errors = frame[frame["level"] == "error"].drop_duplicates(["series", "update"])
    parts = []
    for series, own in course.each(errors):
        updates = [f"{int(update):,}" if update >= 0 else "all" for update in sorted(set(own["update"]))]
        parts.append(f"{series.label} {listed(updates)}")
    return f"Suspect checkpoints (see the last figure): {'; '.join(parts)}." if parts else ""
