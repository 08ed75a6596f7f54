"""`study`: train, measure, compare, check, report; an interrupted study continues where it was."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from infoflow.engine import Engine
from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import (
    UserError,
    current_display,
    lock_file,
    provenance,
    sweep_partial,
    writable,
)
from infoflow.report import anonymize, check_replaceable, write_report
from infoflow.results import RunFolder
from infoflow.training import usable_device

from ._clock import CLOCK_FILE, WallClock, wall_clock
from ._engines import engine_for
from ._graph import graph
from ._measures import check_tables
from ._plan import StudyPlan
from ._run import Run
from ._run_stages import run_stages
from ._so_far import SO_FAR
from ._study_facts import split_facts, study_facts
from .stages import Train


def study(
    plan: StudyPlan | Path | str = "quick",
    out: Path | str | None = None,
    num_processes: int | None = None,
    anonymous: bool = False,
    cluster: str | None = None,
    insecure: bool = False,
) -> Run:
    """Run a study, or continue it, in the folder `out` (default: `runs/` and the plan's name).

    Train matched models of every objective and seed, score and measure each (and its untrained control) on sentences
    it never saw, compare them pairwise, check the published findings, and write the report. Every piece is keyed by
    what it depends on: the same call after an interruption, or with a changed plan, redoes only what is missing.

    Args:
        plan: A plan, a TOML file, or a preset: quick, laptop, paper, replicate, zoo, architectures, adaptation,
            retrieval.
        out: The run folder.
        num_processes: Stages at a time on this machine; by default as many as the budget of threads (`--threads`, else
            the cores) has room for on a CPU, one on a GPU; under `torchrun` all processes do each stage together.
        cluster: Where else stages run: "listen" lets other machines join (`infoflow worker`), "tls://HOST:PORT" or a
            scheduler file names a running Dask cluster.
        insecure: Whether that cluster's scheduler may be reached without encryption: who reaches its port runs code as
            the user.
        anonymous: Whether run.json and the report, when it is done, hold no path and no name of a local file.

    Raises:
        UserError: The plan, the corpus or the folder does not allow it.
        KeyboardInterrupt: It was interrupted; give the same call again.
    """
    name = Path(str(plan)).stem if not isinstance(plan, StudyPlan) else "study"
    plan = plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan)
    if insecure and not cluster:
        raise UserError("--insecure goes with --cluster: name the cluster, or leave it out.")
    check_tables(plan)
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
            _study(plan, run, engine_for(plan, run, num_processes, cluster, insecure), clock)
        if anonymous and is_first():
            anonymize(run)
    return Run(run)


def _study(plan: StudyPlan, run: RunFolder, engine: Engine, clock: WallClock) -> None:
    stages = graph(plan, run)
    run_stages(stages, run, engine, hint=f"What is done so far: infoflow report {run.path} --so-far")
    models = stages.of(Train)[0].models
    split = split_facts(models)
    if is_first():
        before, now = run.read(), provenance()
        timings = {**before.get("timings", {}), "study (this call)": clock.this_call}
        facts = study_facts(stages.stages, models, split, timings, stages.records(), clock.all_calls)
        run.update(**facts, command=now["command"], provenance=now, warnings=before.get("warnings", []))
        write_report(run)
        shutil.rmtree(run.path / SO_FAR, ignore_errors=True)
    wait_for_all()
    models.bench.discard("samples")


@contextmanager
def only_one(run: RunFolder) -> Iterator[None]:
    """Hold the run folder's lock: two studies in one folder would overwrite each other."""
    if not is_first():
        yield
        return
    made = [folder for folder in (run.path.absolute(), *run.path.absolute().parents) if not folder.exists()]
    with writable(run.path):
        run.path.mkdir(parents=True, exist_ok=True)
        lock = (run.path / ".lock").open("w", encoding="utf-8")
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


_BEGUN = (".lock", "run.json", CLOCK_FILE)  # what a study writes before anything else


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
    if not lock_file(file.fileno()):
        current_display().note(
            f"The file system of {Path(file.name).parent} has no locks: take care that no other infoflow works there."
        )


def _remove_if_nothing_was_done(run: RunFolder, made: list[Path]) -> None:
    """A refused command leaves none of the folders behind that it made, the innermost of which is the run's.

    A plan may be refused when its sentences are cut up and its tasks are read: neither counts as done.
    """
    files = [path.relative_to(run.path) for path in run.path.rglob("*") if not path.is_dir()]
    if all(path.name in _BEGUN or path.match("work/*.json") or "tokenizers-" in str(path.parent) for path in files):
        shutil.rmtree(run.path, ignore_errors=True)
        with suppress(OSError):  # something else lies there by now
            for folder in made[1:]:
                folder.rmdir()
