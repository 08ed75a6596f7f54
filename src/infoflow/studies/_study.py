"""`study`: train, measure, compare, check, report; an interrupted study continues where it was."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import pandas as pd

from infoflow.alignment import ALIGNMENT
from infoflow.dynamics import ALLOCATION_SIMILARITY
from infoflow.findings import FINDINGS_TABLE, evaluate
from infoflow.flow import is_first, processes, wait_for_all
from infoflow.foundation import (
    Threads,
    UserError,
    current_display,
    digest,
    file_digest,
    lock_file,
    provenance,
    read_setting,
    sweep_partial,
    thread_budget,
    writable,
)
from infoflow.report import anonymize, check_replaceable, write_report
from infoflow.results import Column, RunFolder, TableSchema
from infoflow.training import usable_device

from ._alignment import SEED, aligned
from ._clock import CLOCK_FILE, WallClock, wall_clock
from ._compare import PAIR_KEYS, compared
from ._data import encode_all
from ._dynamics import recorded_tables
from ._jobs import Job, StudyJobs, job_cost, pruning_jobs, study_jobs
from ._learning import LEARNING_CURVES, learning_curve
from ._measures import pair_measures
from ._plan import StudyPlan
from ._processes import JobProgress, run_in_processes
from ._pruning import pruned_tables
from ._run import Run
from ._workbench import Part, stacked

MODEL_KEYS = (
    Column(name="model", dtype="string", unit="", description="name of the model"),
    Column(name="objective", dtype="string", unit="", description="what it was trained for"),
    Column(name="seed", dtype="int64", unit="", description="seed of initialisation, data order and noise"),
    Column(name="trained", dtype="bool", unit="", description="false: as initialised (the control)"),
)
TRAINING_RUNS = TableSchema(
    name="training_runs",
    version=1,
    description="what each model was trained on and what it cost",
    columns=(
        *MODEL_KEYS[:3],
        Column(name="updates", dtype="int64", unit="updates", description="optimiser steps"),
        Column(name="source_tokens", dtype="int64", unit="tokens", description="source tokens read, padding excluded"),
        Column(name="target_tokens", dtype="int64", unit="tokens", description="target tokens read by a decoder"),
        Column(name="supervised_tokens", dtype="int64", unit="tokens", description="tokens that the loss looked at"),
        Column(name="seconds", dtype="float64", unit="s", description="wall time of training, interruptions excluded"),
        Column(name="cpu_seconds", dtype="float64", unit="s", description="CPU time of the process that finished it"),
        Column(name="parameters", dtype="int64", unit="", description="number of parameters"),
        Column(name="validation_loss", dtype="float64", unit="nats/token", description="loss on the validation part"),
    ),
)


def study(
    plan: StudyPlan | Path | str = "quick",
    out: Path | str | None = None,
    num_processes: int | None = None,
    anonymous: bool = False,
) -> Run:
    """Run a study, or continue it, in the folder `out` (default: `runs/` and the plan's name).

    Train matched models of every objective and seed, score and measure each (and its untrained control) on sentences
    it never saw, compare them pairwise, check the published findings, and write the report. Every piece is keyed by
    what it depends on: the same call after an interruption, or with a changed plan, redoes only what is missing.

    Args:
        plan: A plan, a TOML file, or a preset: quick, laptop, paper, replicate.
        out: The run folder.
        num_processes: Models trained or measured at a time on this machine; by default one per thread (`--threads`,
            else the cores) for models on the CPU, and one on a GPU or under `torchrun`.
        anonymous: Whether run.json and the report, when it is done, hold no path and no name of a local file.

    Raises:
        UserError: The plan, the corpus or the folder does not allow it.
        KeyboardInterrupt: It was interrupted; give the same call again.
    """
    name = Path(str(plan)).stem if not isinstance(plan, StudyPlan) else "study"
    plan = plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan)
    run = RunFolder(out or Path("runs") / name)
    if not run.path.exists():  # what is trained already needs no device
        usable_device(plan.training.device)
    with only_one(run):
        before = run.read()
        if before and before.get("kind") != "study":
            raise UserError(f"{run.path} holds a run of another kind ({before.get('kind')}). Choose another --out.")
        if is_first():
            check_replaceable(run.report)
            run.update(anonymous=False, kind="study", title=plan.title, plan=plan.to_json(), provenance=provenance())
        with wall_clock(run, save=is_first()) as clock:
            _study(plan, run, num_processes, clock)
        if anonymous and is_first():
            anonymize(run)
    return Run(run)


def _study(plan: StudyPlan, run: RunFolder, num_processes: int | None, clock: WallClock) -> None:
    jobs = StudyJobs(plan, run)
    for job in study_jobs(plan):
        if job.kind == "train":
            jobs.check_trained(job)
    _do_all(jobs, run, _processes(plan, num_processes))
    for job in study_jobs(plan):
        if job.kind == "train":
            jobs.publish(job)
    pairs, alignment = compared(jobs), aligned(jobs)
    split = jobs.bench.facts("parts", digest([1, jobs.data.key]), jobs.data.parts.facts)
    if is_first():
        _write_tables(jobs, run, pairs, alignment)
        _describe(jobs, run, clock, split)
        write_report(run)
    wait_for_all()
    jobs.bench.discard("samples")


def _processes(plan: StudyPlan, wanted: int | None) -> int:
    """Processes by default: one per core for small models on the CPU."""
    import torch

    if processes()[1] > 1:
        return 1
    if wanted is not None:
        return read_setting(Threads, wanted, "--processes")
    on_cpu = plan.training.device == "cpu" or (plan.training.device == "auto" and not torch.cuda.is_available())
    return thread_budget() if on_cpu else 1


def _do_all(jobs: StudyJobs, run: RunFolder, num_processes: int) -> None:
    missing = [job for job in study_jobs(jobs.plan) if not jobs.is_done(job)]
    if not missing:
        return
    if num_processes == 1:
        for job in missing:
            current_display().note(job.label)
            jobs.do(job)
        return
    encode_all(jobs.data, jobs.plan.model.positions)
    total = sum(map(job_cost, missing))
    with current_display().progress("Study", total, "units of work") as progress:
        run_in_processes(missing, run.path, num_processes, JobProgress(progress))


def _write_tables(jobs: StudyJobs, run: RunFolder, pairs: Part, alignment: pd.DataFrame | None) -> None:
    """Put the parts together into the run's tables, and judge the findings by them."""
    run.tables.clear()  # an earlier plan's
    schemas = {name: schema.with_keys(*MODEL_KEYS) for name, schema in jobs.schemas().items()}
    measured = stacked(_measured(jobs, job) for job in study_jobs(jobs.plan) if job.kind == "measure")
    for name, frame in measured.items():
        run.tables.write(frame, schemas[name])
    for measure in pair_measures(jobs.plan.analysis):
        if measure.name in pairs:
            run.tables.write(pairs[measure.name], measure.table.with_keys(*PAIR_KEYS))
    run.tables.write(_training_runs(jobs), TRAINING_RUNS)
    run.tables.write(_learning_curves(jobs), LEARNING_CURVES)
    if alignment is not None:
        run.tables.write(alignment, ALIGNMENT.with_keys(SEED))
    for schema, frame in recorded_tables(jobs, [job for job in study_jobs(jobs.plan) if job.kind == "train"]):
        run.tables.write(frame, schema.with_keys(*MODEL_KEYS) if schema.name != ALLOCATION_SIMILARITY.name else schema)
    for schema, frame in pruned_tables(jobs, pruning_jobs(jobs.plan)):
        run.tables.write(frame, schema.with_keys(*MODEL_KEYS))
    run.tables.write(evaluate(run.tables), FINDINGS_TABLE)


def _measured(jobs: StudyJobs, job: Job) -> Part:
    keys = {"model": job.model, "objective": job.objective, "seed": job.seed, "trained": job.trained}
    tables = jobs.bench.read_each("measured", jobs.table_keys(job))
    return {name: frame.assign(**keys) for name, frame in tables.items()}


def _training_runs(jobs: StudyJobs) -> pd.DataFrame:
    rows = [
        {
            "model": job.model,
            "objective": job.objective,
            "seed": job.seed,
            **jobs.bench.read_facts("trained", jobs.train_key(job)),
        }
        for job in study_jobs(jobs.plan)
        if job.kind == "train"
    ]
    return pd.DataFrame(rows)


def _learning_curves(jobs: StudyJobs) -> pd.DataFrame:
    curves = [
        learning_curve(jobs.log(job)).assign(model=job.model, objective=job.objective, seed=job.seed)
        for job in study_jobs(jobs.plan)
        if job.kind == "train"
    ]
    return pd.concat(curves, ignore_index=True)


def _describe(jobs: StudyJobs, run: RunFolder, clock: WallClock, split: dict[str, Any]) -> None:
    """What the report's summary and methods need beside the tables."""
    data = jobs.data
    trained = _training_runs(jobs).to_dict("records")
    timings = {**run.read().get("timings", {}), "training (sum over models)": sum(row["seconds"] for row in trained)}
    timings["study (this call)"] = clock.this_call
    parts: dict[str, Any] = {"train": data.train, "validation": data.validation, "test": data.test}
    sizes = {name: len(part) for name, part in parts.items()} | {"analysed": len(data.analysed)}
    other = data.other_domain
    run.update(
        corpus={
            "name": jobs.plan.corpus.name,
            "digest": data.train.digest,
            "sentences": sum(len(part) for part in parts.values()),
            "words": int(sum(part.word_counts.sum() for part in parts.values())),
            "parts": sizes,
            "split": split,
            **({} if other is None else {"other_domain": {"digest": other.digest, "sentences": len(other)}}),
        },
        models=[{**row, "sha256": _weights_digest(run, row["model"])} for row in trained],
        timings={name: round(value, 1) for name, value in timings.items()},
        seconds=round(clock.all_calls, 1),
        warnings=run.read().get("warnings", []),
        failures=[
            asdict(failure) for job in study_jobs(jobs.plan) if job.kind == "measure" for failure in jobs.failures(job)
        ],
        command=provenance()["command"],
        provenance=provenance(),
    )


def _weights_digest(run: RunFolder, model: str) -> str:
    return file_digest(run.models / model / "model.safetensors")


@contextmanager
def only_one(run: RunFolder) -> Iterator[None]:
    """Hold the run folder's lock: two studies in one folder would overwrite each other."""
    if not is_first():
        yield
        return
    made = [folder for folder in (run.path.absolute(), *run.path.absolute().parents) if not folder.exists()]
    with writable(run.path):
        run.path.mkdir(parents=True, exist_ok=True)
        lock = (run.path / ".lock").open("w")
    with lock:
        try:
            _lock(lock)
        except BlockingIOError:
            raise UserError(f"Another infoflow works in {run.path}. Wait for it, or choose another --out.") from None
        sweep_partial(run.path)
        try:
            yield
        except Exception:
            if made:
                _remove_if_nothing_was_done(run, made)
            raise


@contextmanager
def removed_if_refused(run: RunFolder) -> Iterator[None]:
    """As `only_one`, a refused command leaves no folder behind; but others may work there too."""
    made = [folder for folder in (run.path.absolute(), *run.path.absolute().parents) if not folder.exists()]
    try:
        yield
    except Exception:
        if made:
            _remove_if_nothing_was_done(run, made)
        raise


def _lock(file: IO[str]) -> None:
    if not lock_file(file.fileno()) and os.name != "nt":  # on Windows the user takes care
        current_display().note(
            f"The file system of {Path(file.name).parent} has no locks: take care that no other infoflow works there."
        )


def _remove_if_nothing_was_done(run: RunFolder, made: list[Path]) -> None:
    """A refused command leaves none of the folders behind that it made, the innermost of which is the run's."""
    files = [path for path in run.path.rglob("*") if not path.is_dir()]
    if {path.name for path in files} <= {".lock", "run.json", CLOCK_FILE}:
        shutil.rmtree(run.path, ignore_errors=True)
        with suppress(OSError):  # something else lies there by now
            for folder in made[1:]:
                folder.rmdir()
