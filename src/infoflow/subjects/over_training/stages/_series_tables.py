"""Tables about the checkpoints of a series, also from several machines."""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.foundation import UserError, atomic_folder
from infoflow.results import KEYS, Recipe, RunFolder, Spec, Subject
from infoflow.studies._workbench import Part
from infoflow.training import CHECKPOINTS, CLOCKS, Clock

from ..measures import (
    CHECKPOINT_CHECKS,
    CheckpointSeries,
    SeriesChecks,
    SuiteCheckpoint,
    WeighedCheckpoint,
    Weight,
    check_series,
)
from ._series import WeighCheckpoint

# Tables about the checkpoints of a series, and the columns that identify each checkpoint in every table.


CHECKPOINT_TABLES = {schema.name: schema.with_keys(*KEYS, *CLOCKS) for schema in (CHECKPOINTS, CHECKPOINT_CHECKS)}
"""`checkpoints` and `checkpoint_checks` with the columns that identify a row's checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MeasuredCheckpoint:
    """A checkpoint and the contents of its files."""

    checkpoint: SuiteCheckpoint
    weighing: WeighCheckpoint


def checked(series: CheckpointSeries, weighing: Mapping[str, WeighCheckpoint]) -> SeriesChecks:
    """Check results for a series whose files were all examined."""
    seen = [_seen(series, checkpoint, weighing[checkpoint.name]) for checkpoint in series.checkpoints]
    return check_series(seen, series.missing)


def _seen(series: CheckpointSeries, checkpoint: SuiteCheckpoint, weighing: WeighCheckpoint) -> WeighedCheckpoint:
    facts = weighing.facts
    return WeighedCheckpoint(
        name=checkpoint.name,
        update=checkpoint.update,
        progress=checkpoint.update / max(1, series.updates),
        named=checkpoint.named,
        saved_at=checkpoint.state.step,
        by_hand=checkpoint.by_hand,
        files=checkpoint.place.weight_files(),
        weight=Weight.from_json(facts["weight"]) if facts["weight"] else None,
        fault=facts["fault"],
        sketch=weighing.sketch,
        loss=_number(facts["loss"]),
        loss_error=_number(facts["loss_error"]),
    )


def clocks(series: CheckpointSeries, checks: SeriesChecks) -> dict[str, Clock]:
    """Position of each checkpoint in the training, by its name."""
    return {
        one.name: Clock(
            update=one.update,
            tokens=one.tokens,
            progress=one.update / max(1, series.updates),
            **({"same_as": checks.same_as[one.name]} if one.name in checks.same_as else {}),
        )
        for one in series.checkpoints
    }


def subject_of(
    series: CheckpointSeries, measured: Sequence[MeasuredCheckpoint], one: MeasuredCheckpoint | None, update: int = 0
) -> Subject:
    """The model of a series at a checkpoint, or at an update without one.

    If its own task and family are unknown, they are taken from any other checkpoint.
    """
    facts = [each.weighing.facts for each in measured if each is one] + [each.weighing.facts for each in measured]
    known = next((each for each in facts if each["task"]), {"task": "", "family": ""})
    recipe = Recipe(objective=Spec(known["task"]), architecture=Spec(known["family"]), seed=0)
    return Subject(recipe=recipe, update=update if one is None else one.checkpoint.update, given=series.name)


def series_rows(
    series: CheckpointSeries, measured: Sequence[MeasuredCheckpoint], checks: SeriesChecks, left_out: set[str]
) -> Part:
    """The rows of `checkpoints` and `checkpoint_checks`."""
    times, by_name = clocks(series, checks), {one.checkpoint.name: one for one in measured}
    checkpoints = [
        {
            **subject_of(series, measured, one).keys(),
            **times[one.checkpoint.name].columns(),
            **_facts(one),
            "skipped": math.nan,
            "excluded": one.checkpoint.name in left_out,
        }
        for one in measured
    ]
    rows = []
    for row in checks.rows:
        one = by_name.get(row.name)
        clock = times[row.name] if one else Clock(update=row.update, progress=row.update / max(1, series.updates))
        subject = subject_of(series, measured, one, row.update)
        found = {column.name: getattr(row, column.name) for column in CHECKPOINT_CHECKS.columns}
        rows.append({**subject.keys(), **clock.columns(), **found})
    names = CHECKPOINT_TABLES[CHECKPOINT_CHECKS.name].column_names
    return {
        CHECKPOINTS.name: pd.DataFrame(checkpoints),
        CHECKPOINT_CHECKS.name: pd.DataFrame(rows, columns=names),
    }


def _facts(one: MeasuredCheckpoint) -> dict[str, object]:
    place, state, facts = one.checkpoint.place, one.checkpoint.state, one.weighing.facts
    files = place.weight_files()
    return {
        "name": one.checkpoint.name,
        "revision": place.revision,
        "commit": place.commit,
        "sha256": " ".join(file.sha256 for file in files),
        "bytes": sum(file.bytes for file in files),
        "dtype": Weight.from_json(facts["weight"]).dtype if facts["weight"] else "",
        "lr": state.lr,
        "training_loss": state.training_loss,
        "validation_loss": state.validation_loss,
        "sample_loss": _number(facts["loss"]),
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else value


# Several machines measure shares of the checkpoints of one training; merged, they form one run.


SHARD_KIND = "over-training-shard"


def of_shard(number: int, shard: tuple[int, int]) -> range:
    """Indices of a shard's stages: every n-th, which spreads early and late checkpoints.

    Raises:
        UserError: There is no such shard.
    """
    part, parts = shard
    if not 0 <= part < parts:
        raise UserError(f"--shard must be i/n with 0 ≤ i < n. Got {part}/{parts}. Shards count from 0.")
    return range(part, number, parts)


def is_shard(folder: Path | str) -> bool:
    """Whether `infoflow over-training --shard` wrote the folder."""
    return RunFolder.existing(folder).read().get("kind") == SHARD_KIND


def gather_shards(folders: Sequence[Path | str], out: Path) -> dict[str, Any]:
    """Copy the results of each shard to `out/work`, named by what determines them; returns their common plan.

    Raises:
        UserError: A folder holds no shard, or shards are missing, duplicated, or from different commands or corpora.
    """
    runs = [RunFolder.existing(folder) for folder in folders]
    manifests = [run.read() for run in runs]
    for run, manifest in zip(runs, manifests, strict=True):
        if manifest.get("kind") != SHARD_KIND:
            raise UserError(f"{run.path} was not written by `infoflow over-training --shard`.")
    first = manifests[0]
    for run, manifest in zip(runs, manifests, strict=True):
        for name, what in (("plan", "another command"), ("corpus", "other sentences")):
            if manifest.get(name) != first.get(name):
                raise UserError(
                    f"{run.path} was made with {what} than {runs[0].path}. Merge shards of the same command."
                )
    _check_complete([tuple(manifest["shard"]) for manifest in manifests])
    for run in runs:
        for source in _results(run.path / "work"):
            target = out / "work" / source.relative_to(run.path / "work")
            if not target.exists():
                with atomic_folder(target) as folder:
                    shutil.copytree(source, folder, dirs_exist_ok=True)
    return first["plan"]


def _check_complete(shards: Sequence[tuple[int, int]]) -> None:
    parts = {parts for _, parts in shards}
    if len(parts) > 1:
        raise UserError(
            f"The shards are parts of {' and of '.join(map(str, sorted(parts)))}. Merge shards of the same command."
        )
    numbers = [part for part, _ in shards]
    if len(set(numbers)) < len(numbers):
        raise UserError(f"Shards must be distinct. Got {', '.join(map(str, sorted(numbers)))}.")
    (whole,) = parts
    if missing := sorted(set(range(whole)) - set(numbers)):
        raise UserError(
            f"Shards {', '.join(map(str, missing))} of {whole} are missing (counted from 0). Name all of them."
        )


def _results(work: Path) -> Iterator[Path]:
    """The folders of results, each named by what determines them."""
    for kind in sorted(path for path in work.iterdir() if path.is_dir()) if work.exists() else ():
        yield from sorted(path for path in kind.iterdir() if path.is_dir())
