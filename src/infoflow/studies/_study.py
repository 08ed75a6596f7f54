"""`study`, which trains, measures, compares, checks and reports, resumably; also single models and single stages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import IO, Any

from infoflow import foundation
from infoflow.engine import Engine, InTurn, cluster_engine, local_engine
from infoflow.flow import is_first, processes, wait_for_all
from infoflow.report import anonymize, check_output, write_report
from infoflow.results import RunFolder
from infoflow.training import usable_device

from ._graph import Graph, graph, records, run_stages
from ._measures import check_tables
from ._plan import StudyPlan, stored_plan
from ._plugins import own_measures
from ._run import CLOCK_FILE, SO_FAR, Run, WallClock, split_facts, study_facts, wall_clock
from .stages import AbstractStage, Train

_ENTRY = "infoflow.studies:stage_of"
_PRELOAD = ("torch", "transformers", "infoflow.studies.stages")


def study(
    plan: StudyPlan | Path | str = "quick",
    out: Path | str | None = None,
    num_processes: int | None = None,
    anonymous: bool = False,
    cluster: str | None = None,
    insecure: bool = False,
) -> Run:
    """Run or continue a study in the folder `out` (default: `runs/` and the plan's name).

    A study trains matched models of every objective and seed, scores and measures each model and its untrained control
    on sentences that it never saw, compares models in pairs, checks the published findings, and writes the report.
    Every result is keyed by its dependencies, so the same call after an interruption, or a call with a changed plan,
    computes only what is missing.

    Args:
        plan: A plan, a TOML file, or a preset: quick, laptop, paper, replicate, zoo, architectures, adaptation,
            retrieval.
        out: The run folder.
        num_processes: Concurrent stages on this machine; by default as many as the thread budget (`--threads`, else the
            cores) allows on a CPU, and one on a GPU. Under `torchrun`, all processes run each stage together.
        cluster: Other machines that run stages: "listen" lets them join (`infoflow worker`), "tls://HOST:PORT" or a
            scheduler file names a running Dask cluster.
        insecure: Allow an unencrypted connection to the cluster's scheduler. Anyone who can reach its port can then run
            code as the user.
        anonymous: Omit all paths and names of local files from run.json and the report of the finished study.

    Raises:
        UserError: The plan, the corpus or the folder is unsuitable.
        KeyboardInterrupt: The study was interrupted; the same call continues it.
    """
    name = Path(str(plan)).stem if not isinstance(plan, StudyPlan) else "study"
    plan = plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan)
    if insecure and not cluster:
        raise foundation.UserError("--insecure needs --cluster: name the cluster, or leave it out.")
    check_tables(plan)
    run = RunFolder(out or Path("runs") / name)
    if not run.path.exists():  # existing trained models need no device
        usable_device(plan.training.device)
    with only_one(run):
        check_output(run, "study", tables=[measure.name for measure in own_measures(plan.plugins)])
        if is_first():
            run.update(
                anonymous=False,
                kind="study",
                title=plan.title,
                plan=plan.to_json(),
                **foundation.private_settings(StudyPlan),
                provenance=foundation.provenance(),
            )
        with wall_clock(run, save=is_first()) as clock:
            _study(plan, run, engine_for(plan, run, num_processes, cluster, insecure), clock)
        if anonymous and is_first():
            anonymize(run)
    return Run(run)


def _study(plan: StudyPlan, run: RunFolder, engine: Engine, clock: WallClock) -> None:
    stages = graph(plan, run)
    run_stages(stages, run, engine, hint=f"To see the results so far: infoflow report {run.path} --so-far")
    models = stages.of(Train)[0].models
    split = split_facts(models)
    if is_first():
        before = run.read()
        timings = {**before.get("timings", {}), "study (this call)": clock.this_call}
        facts = study_facts(stages.stages, models, split, timings, stages.records(), clock.all_calls)
        run.record(**facts, warnings=before.get("warnings", []))
        write_report(run)
        shutil.rmtree(run.path / SO_FAR, ignore_errors=True)
    wait_for_all()
    models.bench.discard("samples")


@contextmanager
def only_one(run: RunFolder) -> Iterator[None]:
    """Hold the run folder's lock, since two studies in one folder would overwrite each other."""
    if not is_first():
        yield
        return
    made = _missing_folders(run)
    with foundation.writable(run.path):
        run.path.mkdir(parents=True, exist_ok=True)
        lock = (run.path / ".lock").open("w", encoding="utf-8")
    with lock:
        try:
            _lock(lock)
        except BlockingIOError:
            raise foundation.UserError(
                f"Another infoflow process is working in {run.path}. Wait for it, or choose another --out."
            ) from None
        foundation.sweep_partial(run.path)
        with removed_if_refused(run, made):
            yield


_BEGUN = (".lock", "run.json", CLOCK_FILE)  # the files that a study writes first


def _missing_folders(run: RunFolder) -> list[Path]:
    return [folder for folder in (run.path.absolute(), *run.path.absolute().parents) if not folder.exists()]


@contextmanager
def removed_if_refused(run: RunFolder, made: list[Path] | None = None) -> Iterator[None]:
    """Remove the folders that a refused command has created (`made`), unless other processes work in them."""
    made = _missing_folders(run) if made is None else made
    try:
        with foundation.disk_named(run.path):
            yield
    except Exception:
        if made:
            _remove_if_nothing_was_done(run, made)
        raise


def _lock(file: IO[str]) -> None:
    if not foundation.lock_file(file.fileno()):
        foundation.current_display().note(
            f"The file system of {Path(file.name).parent} has no locks: make sure that no other infoflow "
            "process works there."
        )


def _remove_if_nothing_was_done(run: RunFolder, made: list[Path]) -> None:
    """Remove the folders that a refused command created, the innermost of which is the run folder.

    A plan may be refused while its sentences are split or its tasks are read, and neither counts as work done.
    """
    files = [path.relative_to(run.path) for path in run.path.rglob("*") if not path.is_dir()]
    if all(path.name in _BEGUN or path.match("work/*.json") or "tokenizers-" in str(path.parent) for path in files):
        shutil.rmtree(run.path, ignore_errors=True)
        with suppress(OSError):  # something else is in it by now
            for folder in made[1:]:
                folder.rmdir()


def engine_for(
    plan: StudyPlan, run: RunFolder, num_processes: int | None, cluster: str | None = None, insecure: bool = False
) -> Engine:
    """The engine for a study on this machine or a cluster."""
    if cluster:
        jobs = num_processes or 0
        return cluster_engine(cluster, run.path, entry=_ENTRY, preload=_PRELOAD, jobs=jobs, insecure=insecure)
    jobs = _jobs(plan, num_processes)
    return InTurn() if jobs == 1 else local_engine(jobs, _PRELOAD, folder=run.path, entry=_ENTRY)


def _jobs(plan: StudyPlan, wanted: int | None) -> int:
    """Number of concurrent stages: on a CPU as many as the threads allow, on a GPU as many as share it."""
    import torch

    if processes()[1] > 1:
        return 1
    if wanted is not None:
        return foundation.read_setting(foundation.Threads, wanted, "--processes")
    on_cpu = plan.training.device == "cpu" or (plan.training.device == "auto" and not torch.cuda.is_available())
    return max(1, foundation.thread_budget() // plan.engine.threads) if on_cpu else plan.engine.per_gpu


def stage_of(folder: str, key: str) -> AbstractStage:
    """The stage with this key in the graph of the run folder's plan, for a process of an engine."""
    stages = stored_graph(folder)
    if key not in stages.by_key:
        raise foundation.UserError(
            f"The plan in {folder} has no stage {key}: it has changed. Run the same command again."
        )
    return stages[key]


def stored_graph(folder: str) -> Graph:
    """The graph of the plan in a run folder, whose data must be prepared."""
    return _graph(os.fspath(folder), (Path(folder) / "run.json").stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _graph(folder: str, changed: int) -> Graph:
    run = RunFolder.existing(folder)
    return graph(stored_plan(run, run_code=True), run, prepared=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    folder: Path  # plain Hugging Face folder
    facts: dict[str, Any]  # updates, tokens, seconds, parameters, validation loss
    checkpoints: Path | None = (
        None  # plain Hugging Face folders of the plan's `[checkpoints]`; None: none were requested
    )


def train_model(
    objective: str, plan: StudyPlan | Path | str = "quick", seed: int = 0, out: Path | str | None = None
) -> TrainedModel:
    """Train or continue one model of a plan in the run folder `out` (default: `runs/` and the objective).

    A study of the same plan in the same folder reuses the model instead of training it again. If an objective learns
    from a teacher, as distillation does, the teacher is trained first.
    """
    plan = plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan)
    teacher = plan.objective(objective).teacher  # the teacher is trained first, in the same folder
    objectives = (teacher, objective) if teacher else (objective,)
    plan = plan.for_models(objectives=objectives, seeds=(seed,))
    run = RunFolder(out or Path("runs") / objective)
    if not run.path.exists():  # an existing trained model needs no device
        usable_device(plan.training.device)
    with only_one(run):
        check_output(run, "study")
        if is_first() and not run.read():  # keep a study's own plan
            run.update(kind="study", title=plan.title, plan=plan.to_json(), provenance=foundation.provenance())
        with wall_clock(run, save=is_first()):
            stages = graph(plan, run)
            trainings = stages.of(Train)
            training = trainings[-1]
            needed = [*trainings, *(stage for stage in stages if stage.with_training)]
            run_stages(Graph(stages=needed, folder=run), run, InTurn(), title="Training")
            models, recipe = training.models, training.recipe
            checkpoints = models.snapshots(recipe).folder if plan.checkpoints.on else None
            return TrainedModel(facts=training.facts(), folder=models.published(recipe), checkpoints=checkpoints)


def list_stages(run: RunFolder, plan: StudyPlan | None = None) -> list[dict[str, Any]]:
    """The stages of a run's plan as plain values, each after the stages that it needs.

    If a `plan` is given, the run folder is prepared for it, since keys depend on the split sentences and tokenizers.
    Each stage has `key`, `label`, `kind`, `needs` (keys), `done` (never for the last stage, which judges claims),
    `cost` (seconds; estimated until a stage of this kind has run), `memory` (bytes at its peak, or the median of its
    kind; null until one has run), `threads` and `gpus` (0 on a CPU; a share if stages share a GPU).
    """
    if plan is None:
        return _listed(graph(stored_plan(run, run_code=True), run, prepared=True))
    with only_one(run):
        run.update(
            kind="study",
            title=plan.title,
            plan=plan.to_json(),
            **foundation.private_settings(StudyPlan),
            provenance=foundation.provenance(),
        )
        return _listed(graph(plan, run))


def _listed(stages: Graph) -> list[dict[str, Any]]:
    known = records(stages.folder)
    peaks: dict[str, list[int]] = {}
    for record in known.values():
        peaks.setdefault(record["kind"], []).append(record["peak_memory"])
    return [
        {
            "key": stage.key,
            "label": stage.label,
            "kind": stage.kind,
            "needs": list(stage.needs),
            "done": stage.is_done(),
            "cost": round(stage.cost, 2),
            "memory": known.get(stage.key, {}).get("peak_memory") or _typical(peaks.get(stage.kind, [])),
            "threads": stage.threads,
            "gpus": stage.resources.get("GPU", 0),
        }
        for stage in stages
    ]


def _typical(peaks: list[int]) -> int | None:
    return int(median(peaks)) if peaks else None


def run_stage(folder: Path | str, key: str) -> bool:
    """Run one stage of a study's graph, and return False if it was already done; the stages it needs must be done.

    An interrupted stage continues from its last saved state. What it uses is recorded in the run folder, as by `study`.
    Stages of one run may run at the same time, even on several machines that share the folder.
    """
    run = RunFolder.existing(folder)
    stage = stage_of(os.fspath(run.path), key)
    if stage.is_done():
        return False
    every = stored_graph(os.fspath(run.path))
    missing = [every[need].label for need in stage.needs if not every[need].is_done()]
    if missing:
        raise foundation.UserError(
            f"{stage.label} needs stages that are not done: {', '.join(missing[:4])}. Run them first."
        )
    with _alone(run, key):
        run_stages(Graph(stages=[stage], folder=run), run, InTurn(), title=stage.label)
    return True


@contextmanager
def _alone(run: RunFolder, key: str) -> Iterator[None]:
    """Hold the stage's lock, since two simultaneous runs of one stage would overwrite each other's files."""
    path = run.path / "work" / "locks" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        try:
            foundation.lock_file(file.fileno())
        except BlockingIOError:
            raise foundation.UserError(
                f"Stage {key} of {run.path} is running in another process. Wait for it."
            ) from None
        yield
