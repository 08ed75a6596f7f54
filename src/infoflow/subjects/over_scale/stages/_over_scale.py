"""`over_scale`: the claims of several studies over tokens, width and corpus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.findings import (
    FINDINGS,
    FINDINGS_AT_SCALE,
    FINDINGS_BY_RUN,
    FINDINGS_OVER_SCALE,
    OVER_SCALE,
    JudgedRun,
    evaluate,
)
from infoflow.foundation import UserError, current_display
from infoflow.report import check_output, write_report
from infoflow.results import TASK_SCORES, RunFolder
from infoflow.studies._plan import StudyPlan
from infoflow.studies._run import Run
from infoflow.studies._study import only_one
from infoflow.subjects.over_training.measures import (
    NGRAM_AGREEMENT,
    STAGES_BY_WARMUP,
    WarmedUp,
    is_longer_warmup,
    stages_by_warmup,
)
from infoflow.training import TrainConfig, learning_rate

from ..claims._over_scale import ScaleRun, findings_over_scale, scale_runs
from ..claims._scale_trends import TRENDS

_TABLES = (FINDINGS_OVER_SCALE, TRENDS, FINDINGS_BY_RUN, FINDINGS_AT_SCALE)
_SCALE = {  # sections of a plan that define its scale; the others should be equal
    "model": ("width", "layers", "decoder_layers", "heads", "feedforward"),
    "training": ("updates", "max_source_tokens", "save_every", "log_every"),
}
_CLAIM = "time:T19"
_AGREEMENT = NGRAM_AGREEMENT.at_checkpoints
_FREE = ("warmup", "device", "micro_tokens", "log_every", "evaluate_every", "save_every", "keep_last")
"""Training settings that may differ between two warm-ups: the warm-up itself, and settings that change no update."""


def over_scale(studies: Sequence[Path | str], out: Path | str = "runs/over-scale") -> Run:
    """Judge every claim on each of several studies, and report how its effect changes with scale.

    The studies should differ only in tokens, width, depth, corpus and seeds; other differences are reported as
    warnings. Two studies that differ only in a warm-up four times as long also decide `time:T19` (`STAGES_BY_WARMUP`).

    A comparison needs the studies' folders only once. Afterwards the comparison's own folder, of some hundred
    kilobytes, replaces them, so a grid can grow over machines and sessions, and the result always covers all studies.

    Args:
        studies: Folders of `infoflow study` or of earlier comparisons; at least two studies in total, or one with
            checkpoints.
        out: The run folder to write.

    Raises:
        UserError: See `infoflow.subjects.over_scale.claims.scale_runs`; or the folder holds a run of another kind.
    """
    runs = scale_runs(studies)
    target = RunFolder(out)
    with only_one(target):
        check_output(target, OVER_SCALE)
        warnings = _differences(runs)
        for warning in warnings:
            current_display().warn(warning)
        found = findings_over_scale(runs)
        whole = [run for run in runs if isinstance(run, ScaleRun)]
        compared = warm_ups(whole) or warm_ups_before(studies)  # `out` may be one of these folders
        if compared is None:
            target.tables.remove([STAGES_BY_WARMUP.name])
        else:  # replaced atomically: it may be all that is left of the studies
            target.tables.write(compared.stages, STAGES_BY_WARMUP)
            findings, keys = found[FINDINGS_AT_SCALE.name], ["id", "architecture"]
            kept = findings[~findings.set_index(keys).index.isin(compared.claim.set_index(keys).index)]
            found[FINDINGS_AT_SCALE.name] = FINDINGS_AT_SCALE.conform(pd.concat([kept, compared.claim]))
        for schema in _TABLES:
            target.tables.write(found[schema.name], schema)
        target.record(
            kind=OVER_SCALE, title="Published claims over scale", runs=[run.entry for run in runs], warnings=warnings
        )
        write_report(target)
    return Run(target)


def _differences(runs: Sequence[ScaleRun | JudgedRun]) -> list[str]:
    first, *others = runs
    differences = []
    for run in others:
        names = list(_differing(first.plan, run.plan))
        if names:
            differences.append(f"{run.name} and {first.name} differ in {', '.join(names)}, not only in scale.")
    return differences


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Settings of model and training that both plans name with different values."""
    found = []
    for part, scale in _SCALE.items():
        mine, theirs = one.get(part), other.get(part)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            names = [name for name in mine if name in theirs and name not in scale]
            found += [f"{part}.{name}" for name in names if mine[name] != theirs[name]]
    return found


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
    """The stored comparison of two warm-ups from the first of these folders that has one."""
    for tables in (RunFolder(folder).tables for folder in folders):
        if STAGES_BY_WARMUP.name in tables:
            findings = FINDINGS_AT_SCALE.conform(tables[FINDINGS_AT_SCALE.name])
            return WarmUps(tables[STAGES_BY_WARMUP.name], findings[findings["id"] == _CLAIM])
    return None


def _only_warmup_differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether models, data and training are equal, and the second warm-up has the required length."""
    parts = ("corpus", "model", "match")
    if any(one.get(part) != other.get(part) for part in parts):
        return False
    try:
        short, long = (_training(plan) for plan in (one, other))
    except UserError:  # another version, whose settings are unknown
        return False
    names = [name for name in TrainConfig.__dataclass_fields__ if name not in _FREE]
    if any(getattr(short, name) != getattr(long, name) for name in names):
        return False
    return is_longer_warmup(short.warmup_updates, long.warmup_updates)


def _training(plan: Mapping[str, Any]) -> TrainConfig:
    """The plan's training settings, read alone because other sections may name objectives in the user's own files."""
    return StudyPlan.from_json({"training": plan["training"]} if "training" in plan else {}).training


def _warmed_up(run: ScaleRun) -> WarmedUp:
    config = _training(run.manifest["plan"])
    rates = sum(learning_rate(update, config) for update in range(1, config.updates + 1))
    return WarmedUp(name=run.name, warmup=config.warmup_updates, rates=rates, agreement=run.tables[_AGREEMENT])


def _tokens(run: ScaleRun) -> float:
    tokens = run.scale((), run.architecture)["tokens"]
    return tokens if tokens == tokens else 0.0
