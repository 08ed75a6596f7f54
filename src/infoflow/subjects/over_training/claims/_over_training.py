"""Every claim at every checkpoint: when it becomes true, and whether its effect still grows at the end."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from infoflow.findings._evaluate import evaluate
from infoflow.findings._finding import Finding
from infoflow.findings._registry import FINDINGS
from infoflow.findings._schema import FINDINGS_TABLE
from infoflow.results import END, UNTRAINED, Column, TableSchema
from infoflow.training import CLOCKS, SUFFIX, measured_over_training

_CLOCKS = [column.name for column in CLOCKS]
_LEARNED = "task_scores"
_LAST = 3  # checkpoints that decide whether an effect still moves

FINDINGS_OVER_TRAINING = replace(
    FINDINGS_TABLE,
    name=f"findings{SUFFIX}",
    version=2,
    description="Published claims, each tested on the models at every checkpoint, with the sample sizes of "
    "checkpoints, which differ from those of `findings`.",
)
FINDINGS_SINCE = TableSchema(
    name="findings_since",
    description="From which checkpoint on a claim holds without interruption, and whether its effect still changes at "
    "the end.",
    columns=(
        Column("id", "string", "", "group and number of the claim"),
        Column("claim", "string", "", "the claim in plain words"),
        Column("architecture", "string", "", "family of the blocks of the models"),
        Column("verdict", "string", "", "verdict at the last checkpoint"),
        Column(
            "since",
            "int64",
            "updates",
            "first checkpoint from which the claim holds without interruption; -1: it does not hold at the last",
        ),
        Column(
            "before",
            "int64",
            "updates",
            "the checkpoint before `since`: the claim became true between the two; -1: `since` is the first one",
        ),
        Column("effect", "float64", "see unit", "effect at the last checkpoint"),
        Column("change", "float64", "see unit", "change over the last third of the checkpoints, at least three"),
        Column(
            "moves",
            "string",
            "",
            "grows, falls: the effect changed in one direction at each of those checkpoints, in total by "
            "more than half its interval; settled: it did not; unknown: fewer than three checkpoints have one",
        ),
        Column("unit", "string", "", "unit of effect and change"),
    ),
)


def findings_over_training(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """`FINDINGS_OVER_TRAINING` and `FINDINGS_SINCE`, from the tables of a run; empty without any table over training.

    It covers the claims whose tables were all measured at checkpoints, with the claims' own controls; "before training"
    is step 0, with the same sample sizes.
    """
    view, claims = claims_over_training(tables)
    if not claims:
        return {}
    found = evaluate(view, claims)
    found = found[~found["update"].isin([END, UNTRAINED])].reset_index(drop=True)
    if found.empty:
        return {}
    since = [_since(own) for _, own in found.groupby(["id", "architecture"], sort=False)]
    return {
        FINDINGS_OVER_TRAINING.name: FINDINGS_OVER_TRAINING.conform(found),
        FINDINGS_SINCE.name: FINDINGS_SINCE.conform(pd.DataFrame(since)),
    }


def claims_over_training(tables: Mapping[str, pd.DataFrame]) -> tuple[dict[str, pd.DataFrame], list[Finding]]:
    """Checkpoint tables under the names that claims read, and the claims that they can test."""
    view = measured_over_training(tables)
    view = {name: frame.drop(columns=_CLOCKS, errors="ignore") for name, frame in view.items()}
    if _LEARNED in view and _LEARNED in tables:
        view[_LEARNED] = _as_at_the_end(view[_LEARNED], tables[_LEARNED])
    return view, [one for one in FINDINGS.values() if set(one.tables) <= view.keys()]


def _as_at_the_end(checkpoints: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Final scores copied to every checkpoint, to decide whether a model has learned its task.

    Claims over time ask what happens before that, and a model that never learns says nothing about them.
    """
    end, start = scores[scores["update"] == END], checkpoints[checkpoints["update"] == UNTRAINED]
    later = sorted(set(checkpoints["update"]) - {UNTRAINED})
    return pd.concat([start, *(end.assign(update=update) for update in later)], ignore_index=True)


@dataclass(frozen=True, slots=True)
class VerdictRun:
    """A run of neighbouring checkpoints with the same verdict."""

    verdict: str
    first: int  # updates
    last: int
    before: int  # the preceding checkpoint; -1: none


def verdict_runs(rows: pd.DataFrame) -> list[VerdictRun]:
    """The verdict runs of one claim on one architecture, in order of `update`."""
    runs, before = list[VerdictRun](), -1
    ordered = rows.sort_values("update", kind="stable")
    for verdict, update in zip(ordered["verdict"].astype(str), ordered["update"].astype(int), strict=True):
        if runs and runs[-1].verdict == verdict:
            runs[-1] = replace(runs[-1], last=update)
        else:
            runs.append(VerdictRun(verdict, update, update, before))
        before = update
    return runs


def _since(rows: pd.DataFrame) -> dict[str, Any]:
    rows = rows.sort_values("update", kind="stable")
    run, last = verdict_runs(rows)[-1], rows.iloc[-1]
    holds = run.verdict == "holds"
    change, moves = movement(rows)
    return {
        **last[["id", "claim", "architecture", "verdict", "effect", "unit"]].to_dict(),
        "since": run.first if holds else -1,
        "before": run.before if holds else -1,
        "change": change,
        "moves": moves,
    }


def movement(rows: pd.DataFrame) -> tuple[float, str]:
    """`change` and `moves` of `FINDINGS_SINCE`, from a claim's rows in order of `update`."""
    tail = rows.iloc[-max(_LAST, len(rows) // 3) :]
    effects = tail["effect"].to_numpy(dtype=float)
    if len(effects) < _LAST or not np.isfinite(effects).all():
        return float("nan"), "unknown"
    steps, half = np.diff(effects), (tail["high"].iloc[-1] - tail["low"].iloc[-1]) / 2
    change = float(effects[-1] - effects[0])
    monotone = bool((steps > 0).all() or (steps < 0).all())
    if monotone and abs(change) > half:
        return change, "grows" if abs(effects[-1]) > abs(effects[0]) else "falls"
    return change, "settled"
