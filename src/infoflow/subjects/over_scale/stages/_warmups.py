"""Two studies that differ only in their warm-up: when their stages occur, and the claim about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.findings import FINDINGS, FINDINGS_AT_SCALE, evaluate
from infoflow.foundation import UserError
from infoflow.results import TASK_SCORES, RunFolder
from infoflow.studies._plan import StudyPlan
from infoflow.subjects.over_training.measures import (
    NGRAM_AGREEMENT,
    STAGES_BY_WARMUP,
    WarmedUp,
    is_longer_warmup,
    stages_by_warmup,
)
from infoflow.training import TrainConfig, learning_rate

from ..claims._scale_run import ScaleRun

_CLAIM = "time:T19"
_AGREEMENT = NGRAM_AGREEMENT.at_checkpoints
_FREE = ("warmup", "device", "micro_tokens", "log_every", "evaluate_every", "save_every", "keep_last")
"""Training settings that may differ: the warm-up, and those without effect on updates."""


@dataclass(frozen=True, slots=True, eq=False)
class WarmUps:
    """The comparison of two studies: the table `STAGES_BY_WARMUP`, and the claim's row of `FINDINGS_AT_SCALE`."""

    stages: pd.DataFrame
    claim: pd.DataFrame


def warm_ups(runs: Sequence[ScaleRun]) -> WarmUps | None:
    """Compare the two studies that differ only in a warm-up four times as long; None if there are none.

    If several pairs qualify, the one that read the most tokens is used.
    """
    pairs = [
        (short, long)
        for short, long in permutations([run for run in runs if _AGREEMENT in run.tables], 2)
        if _only_warmup_differs(short.manifest["plan"], long.manifest["plan"])
    ]
    if not pairs:
        return None
    short, long = max(pairs, key=lambda pair: (_tokens(pair[0]), pair[0].name))
    stages = stages_by_warmup(_warmed_up(short), _warmed_up(long))
    scores = [run.tables[TASK_SCORES.name] for run in (short, long)]
    named = [
        own.assign(corpus=run.name, model=run.name + "/" + own["model"].astype(str))
        for run, own in zip((short, long), scores, strict=True)
    ]
    tables = {STAGES_BY_WARMUP.name: stages, TASK_SCORES.name: pd.concat(named, ignore_index=True)}
    found = evaluate(tables, [FINDINGS[_CLAIM]]).assign(run=f"{short.name} and {long.name}", trend="")
    return WarmUps(stages, FINDINGS_AT_SCALE.conform(found))


def warm_ups_before(folders: Sequence[Path | str]) -> WarmUps | None:
    """The comparison of two such studies in the first of these folders that holds one."""
    for tables in (RunFolder(folder).tables for folder in folders):
        if STAGES_BY_WARMUP.name in tables:
            findings = FINDINGS_AT_SCALE.conform(tables[FINDINGS_AT_SCALE.name])
            return WarmUps(tables[STAGES_BY_WARMUP.name], findings[findings["id"] == _CLAIM])
    return None


def _only_warmup_differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether models, data and trainings are equal, and the second warm-up has the required length."""
    parts = ("corpus", "model", "match")
    if any(one.get(part) != other.get(part) for part in parts):
        return False
    try:
        short, long = (StudyPlan.from_json(dict(plan)).training for plan in (one, other))
    except UserError:  # another version, whose settings are unknown
        return False
    names = [name for name in TrainConfig.__dataclass_fields__ if name not in _FREE]
    if any(getattr(short, name) != getattr(long, name) for name in names):
        return False
    return is_longer_warmup(short.warmup_updates, long.warmup_updates)


def _warmed_up(run: ScaleRun) -> WarmedUp:
    config = StudyPlan.from_json(dict(run.manifest["plan"])).training
    rates = sum(learning_rate(update, config) for update in range(1, config.updates + 1))
    return WarmedUp(name=run.name, warmup=config.warmup_updates, rates=rates, agreement=run.tables[_AGREEMENT])


def _tokens(run: ScaleRun) -> float:
    tokens = run.scale((), run.architecture)["tokens"]
    return tokens if tokens == tokens else 0.0
