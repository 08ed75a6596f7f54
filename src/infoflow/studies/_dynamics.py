"""Loss change allocation in a study: recorded while models train, or in a second training to the same weights.

A recording is a part of its own, keyed by the training and the settings of `[dynamics]`. A model that was trained, or
begun, without it is trained once more with the recorder; what is published stays the first one's.
"""

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from infoflow.dynamics import (
    ALLOCATION_SIMILARITY,
    TABLES,
    LossChangeRecorder,
    compare_trainings,
    evaluation_set,
)
from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import atomic_write, current_display, digest
from infoflow.models import load_model
from infoflow.results import TableSchema

if TYPE_CHECKING:
    from ._jobs import Job, StudyJobs

_VERSION = 1  # raise when the same plan records otherwise
_LATER = ("allocation_histogram", "allocation_lags")  # tables that older recordings lack: no reason to train again
_STAGE = "recorded"
_BEGUN_WITH = "recording.key"  # in a training's folder: the recording that began with it


def recording_key(jobs: "StudyJobs", job: "Job") -> str:
    """What the recording of the job's training depends on."""
    plan = jobs.plan.dynamics
    settings = {k: v for k, v in dataclasses.asdict(plan).items() if k not in {"on", *plan.record().untold}}
    tables = [[t.name, t.version] for t in TABLES if t.name not in _LATER]
    return digest([_VERSION, tables, jobs.train_key(job), settings])


def is_recorded(jobs: "StudyJobs", job: "Job") -> bool:
    """Whether nothing of the job's recording is missing."""
    return not jobs.plan.dynamics.on or jobs.bench.done(_STAGE, recording_key(jobs, job))


def recorders(jobs: "StudyJobs", job: "Job", folder: Path) -> list[LossChangeRecorder]:
    """The hook for a training in `folder`: none where the plan asks for none, or the training began without it."""
    key, note = recording_key(jobs, job), folder / _BEGUN_WITH
    if is_recorded(jobs, job):
        if is_first():
            note.unlink(missing_ok=True)  # from here on a recording would have a gap
        return []
    if is_first() and not folder.exists():
        folder.mkdir(parents=True)
        with atomic_write(note) as temporary:
            temporary.write_text(key)
    wait_for_all()
    return [_recorder(jobs, job)] if note.exists() and note.read_text() == key else []


def record(jobs: "StudyJobs", job: "Job") -> None:
    """Train the job's model once more with the recorder, unless its recording is there."""
    if is_recorded(jobs, job):
        return
    current_display().note(f"Training {job.model} once more: it was trained before loss changes were to be recorded.")
    folder = jobs.bench.path("recording", recording_key(jobs, job))
    jobs.train_into(job, folder, [_recorder(jobs, job)], keep_last=1, keep_log_spaced=False)
    if is_first():
        shutil.rmtree(folder)
    wait_for_all()


def recorded_tables(jobs: "StudyJobs", training: "Sequence[Job]") -> Iterator[tuple[TableSchema, pd.DataFrame]]:
    """The tables of all recordings with the keys of their models, and how alike these are."""
    if not jobs.plan.dynamics.on:
        return
    parts = []
    for job in training:
        keys = {"model": job.model, "objective": job.objective, "seed": job.seed, "trained": True}
        part = jobs.bench.read(_STAGE, recording_key(jobs, job))
        parts.append({name: frame.assign(**keys) for name, frame in part.items()})
    for schema in TABLES:
        frames = [part[schema.name] for part in parts if schema.name in part]
        if frames:
            yield schema, pd.concat(frames, ignore_index=True)
    groups = pd.concat([part["allocation_groups"] for part in parts], ignore_index=True)
    yield ALLOCATION_SIMILARITY, compare_trainings(groups)


def _recorder(jobs: "StudyJobs", job: "Job") -> LossChangeRecorder:
    plan, objective, data = jobs.plan.dynamics, jobs.plan.objective(job.objective), jobs.data
    sources = [("train", data.train, plan.tokens), ("held-out", data.validation, plan.held_out_tokens)]
    sets = [
        evaluation_set(
            name,
            objective,
            data.encoded(part, jobs.plan.model.positions),
            tokens,
            plan.parts,
            micro_tokens=jobs.plan.training.micro_tokens,
        )
        for name, part, tokens in sources
        if tokens
    ]
    out = jobs.bench.path(_STAGE, recording_key(jobs, job))
    return LossChangeRecorder(sets, load_model(jobs.initial(job)).anatomy, plan.record(), out)
