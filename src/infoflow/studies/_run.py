"""A finished run as an object for people and programs, and the entries of run.json that describe it."""

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow import foundation
from infoflow.findings import FINDINGS_TABLE, OVER_SCALE, Finding, load_claims
from infoflow.flow import Failure
from infoflow.report import Figures, Findings, ShownRun, check_replaceable, write_figures, write_report
from infoflow.results import RunFolder, ShownTables, Subject

from ._graph import Graph, graph
from ._plan import StudyPlan, stored_plan
from ._plugins import named_plugins, own_measures
from ._study_models import StudyModels, prepared_keys
from .stages import AbstractStage, Check, MeasureModel, Train
from .stages._check import write_derived

CLOCK_FILE = ".seconds"
_EVERY = 10.0  # seconds between two writes, which is the most that a killed call loses


class WallClock:
    def __init__(self, file: Path, before: float) -> None:
        self._file, self._before, self._started = file, before, time.monotonic()

    @property
    def this_call(self) -> float:
        return time.monotonic() - self._started

    @property
    def all_calls(self) -> float:
        return self._before + self.this_call

    def save(self) -> None:
        # The run's other writes will report a full disk.
        with suppress(OSError, foundation.UserError), foundation.atomic_write(self._file) as path:
            path.write_text(f"{self.all_calls:.1f}\n", encoding="utf-8")


@contextmanager
def wall_clock(run: RunFolder, save: bool = True) -> Iterator[WallClock]:
    """A clock that continues from where the last call on `run` ended or was killed; `save` stores its time there."""
    clock = WallClock(run.path / CLOCK_FILE, seconds_before(run))
    if not save:
        yield clock
        return
    stop = threading.Event()

    def save_now_and_then() -> None:
        while not stop.wait(_EVERY):
            clock.save()

    saving = threading.Thread(target=save_now_and_then, daemon=True)
    saving.start()
    try:
        yield clock
    finally:
        stop.set()
        saving.join()
        clock.save()


def reset_clock(run: RunFolder) -> None:
    """Reset the clock for a new analysis."""
    WallClock(run.path / CLOCK_FILE, before=0.0).save()


def seconds_before(run: RunFolder) -> float:
    """Total seconds of all calls that have worked on the run."""
    with suppress(OSError, ValueError):
        return float((run.path / CLOCK_FILE).read_text(encoding="utf-8"))
    return float(run.read().get("seconds") or 0.0)


class _WithoutNotes:
    """A display that drops notes and passes on everything else."""

    def __init__(self, display: foundation.Display) -> None:
        self._display = display

    def note(self, text: str) -> None:
        pass

    def warn(self, text: str) -> None:
        self._display.warn(text)

    def progress(self, label: str, total: float, unit: str = "") -> AbstractContextManager[foundation.Progress]:
        return self._display.progress(label, total, unit)


@contextmanager
def without_notes() -> Iterator[None]:
    """Drop notes inside the block, since a study would repeat them for dozens of models."""
    with foundation.use_display(_WithoutNotes(foundation.current_display())):
        yield


SO_FAR = "so-far"
_OF_THE_STUDY = ("kind", "plan", "files", "anonymous", "provenance")  # entries of the run's run.json


def study_facts(
    stages: Sequence[AbstractStage],
    models: StudyModels,
    split: Mapping[str, Any],
    timings: Mapping[str, float],
    records: Sequence[Mapping[str, Any]],
    seconds: float,
) -> dict[str, Any]:
    """Entries of run.json: the corpus, the models, and the cost.

    `split` is the result of `split_facts`. `timings` are seconds by name; the total time of all training is added.
    """
    data = models.data
    trainings = [stage for stage in stages if isinstance(stage, Train)]
    trained = [{**Subject(recipe=stage.recipe).keys(), **stage.facts()} for stage in trainings]
    timings = {**timings, "training (sum over models)": sum(row["seconds"] for row in trained)}
    parts: dict[str, Any] = {"train": data.train, "validation": data.validation, "test": data.test}
    sizes = {name: len(part) for name, part in parts.items()} | {"analysed": len(data.analysed)}
    other, own = data.other_domain, [measure.name for measure in own_measures(models.plan.plugins)]
    return {
        **({"own": own} if own else {}),
        "corpus": {
            "name": models.plan.corpus.name,
            "digest": data.train.digest,
            "sentences": sum(len(part) for part in parts.values()),
            "words": int(sum(part.word_counts.sum() for part in parts.values())),
            "parts": sizes,
            "split": dict(split),
            **({} if other is None else {"other_domain": {"digest": other.digest, "sentences": len(other)}}),
        },
        "models": [
            {**row, "sha256": foundation.file_digest(models.run.models / row["model"] / "model.safetensors")}
            for row in trained
        ],
        "timings": {name: round(value, 1) for name, value in timings.items()},
        "stages": list(records),
        "seconds": round(seconds, 1),
        "failures": [asdict(failure) for stage in stages for failure in stage.failures()],
    }


def split_facts(models: StudyModels) -> dict[str, Any]:
    """How the corpus was split; all processes of a study must call this at the same time."""
    return models.bench.facts("parts", foundation.digest([1, models.data.key]), models.data.parts.facts)


def so_far(run: RunFolder, stages: Graph) -> RunFolder:
    """See `Run.so_far`; `stages` are the stages of the study in `run`."""
    works = [stage for stage in stages if not isinstance(stage, Check)]
    done = [stage for stage in works if stage.is_done()]
    if not any(isinstance(stage, MeasureModel) for stage in done):
        raise foundation.UserError(
            f"{run.path} cannot be reported before one of its models is measured. Got {len(done):,} of "
            f"{len(works):,} stages done. Wait, or run the command that started it again."
        )
    folder = RunFolder(run.path / SO_FAR)
    check_replaceable(folder.report)
    study, models = run.read(), stages.of(Train)[0].models
    timings = study.get("timings", {})
    facts = study_facts(done, models, split_facts(models), timings, stages.records(), seconds_before(run))
    entries: dict[str, Any] = {name: study[name] for name in _OF_THE_STUDY if name in study}
    command = entries.get("provenance", {}).get("command", "")
    title = f"{study.get('title') or run.path.name} (so far: {len(done):,} of {len(works):,} stages)"
    warnings = [_unfinished(works, done), *study.get("warnings", [])]
    folder.path.mkdir(exist_ok=True)
    folder.update(**entries, **facts, title=title, command=command, warnings=warnings)
    Check(folder=folder, stages=done, plugins=models.plan.plugins).run()
    return folder


def _unfinished(works: Sequence[AbstractStage], done: Sequence[AbstractStage]) -> str:
    missing = Counter(stage.kind for stage in works) - Counter(stage.kind for stage in done)
    kinds = ", ".join(f"{kind} ({number:,})" for kind, number in missing.most_common()) or "only the final steps"
    return f"The study is running or was stopped. Missing: {kinds}. Results may change."


_OF_FAILURES = {field.name for field in dataclasses.fields(Failure)}


class Run:
    """A run folder with its tables, figures, findings and report."""

    def __init__(self, folder: RunFolder | Path | str) -> None:
        self.folder = RunFolder.of(folder)

    @classmethod
    def open(cls, path: Path | str) -> "Run":
        """The run in the folder `path`."""
        return cls(RunFolder.existing(path))

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def tables(self) -> ShownTables:
        """The run's tables by name, as data frames."""
        return ShownTables.of(self.folder.tables)

    @cached_property
    def figures(self) -> Figures:
        """The report's figures by name, such as `figures["representations/mutual-information"]`; see `Figures`."""
        return Figures(ShownRun(self.path))

    @property
    def findings(self) -> pd.DataFrame:
        """The claims that were checked, one per row.

        Raises:
            UserError: No claims were checked: an analysis of pretrained or external models checks them only on request
                (`infoflow findings`).
        """
        if FINDINGS_TABLE.name not in self.tables:
            raise foundation.UserError(
                f"{self.path} has no findings. Check the claims on its tables: infoflow findings {self.path}"
            )
        return Findings(self.tables[FINDINGS_TABLE.name])

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Measures that failed on single models; their tables are missing, and the same command tries them again.

        Raises:
            UserError: run.json is damaged.
        """
        found = self.folder.read().get("failures", [])
        known = [{name: value for name, value in failure.items() if name in _OF_FAILURES} for failure in found]
        try:
            return tuple(Failure(**failure) for failure in known)
        except TypeError:
            raise foundation.UserError(
                f"{self.path / 'run.json'} is damaged: each of its failures must have a table, a model and a reason. "
                "Run the command again in a new folder."
            ) from None

    @property
    def stages(self) -> Graph:
        """The stages of the run's plan, with their states, dependencies and tables.

        Raises:
            UserError: The run is not a study.
        """
        return graph(self._plan(), self.folder)

    def _plan(self, own_code: bool = False) -> StudyPlan:
        if self.folder.read().get("kind") != "study":
            raise foundation.UserError(f"{self.path} is not a study: only a study has stages.")
        return stored_plan(self.folder, own_code)

    def so_far(self, own_code: bool = False) -> "Run":
        """The finished part of a running or stopped study, as a run in its folder `so-far`.

        It has the tables of all finished stages and the claims judged by them; its `report()` says what is missing.

        The study itself stays untouched, and removes this folder when it ends. If the plan names code of the user's
        own, that code is needed, and `own_code=True` **executes** it.

        Raises:
            UserError: The run is not a study, none of its models is measured, or its own code must not be executed.
        """
        plan = self._plan(own_code)
        if not prepared_keys(plan, self.folder):  # reading the corpus may take hours and is left to the study
            raise foundation.UserError(
                f"{self.path} cannot be reported before one of its models is measured, and its "
                "sentences are not prepared for the plan in its run.json.\n"
                "Wait, or run the command that started it again."
            )
        return Run(so_far(self.folder, graph(plan, self.folder, prepared=True)))

    def report(self) -> Path:
        """Write `report.html` again and return its path."""
        return write_report(self.folder)

    def write_figures(
        self,
        folder: Path | str,
        formats: Iterable[str] = ("svg", "png", "pdf"),
        width: float = 6.8,
        columns: int | None = None,
    ) -> list[Path]:
        """Write every figure of the report as `<folder>/<figure>.<format>`, `width` inches wide, and return the paths.

        See `infoflow.report.write_figures`. To save a single figure, use `run.figures[...].save("name.pdf")`.
        """
        return write_figures(self.folder, folder, formats, width, columns)

    _repr_html_ = foundation.shown_by("run_shown")

    def __fspath__(self) -> str:
        """The path, so that functions that take a run folder also accept a run."""
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {len(self.tables)} tables)\nrun.tables, run.figures, run.findings"


def check_findings(path: Path | str, claims: Path | str | Sequence[Finding] = ()) -> Run:
    """Judge every claim on the run's tables and rewrite its report, for example after claims were added to infoflow.

    Args:
        path: The run folder.
        claims: Your own additional claims, judged by the same rules, as `Finding` objects or as a Python file that
            holds them. **The file's code is executed.** The next check without them drops them.

    Raises:
        UserError: `path` is not a run folder or has no tables yet, or the file holds no claims.
    """
    own = load_claims(claims) if isinstance(claims, Path | str) else list(claims)
    run = RunFolder.existing(path)
    run.require_tables()
    if not own and (named := named_plugins(run.read()).get("claims")):
        foundation.current_display().warn(
            f"The claims in {named} are left out: their code is run only with --claims FILE."
        )
    if run.read().get("kind") == OVER_SCALE:
        raise foundation.UserError(
            f"{path} is a comparison of several runs. Check their findings again: infoflow over-scale RUN RUN "
            f"... --out {path}"
        )
    write_derived(run, own)
    write_report(run)
    return Run(run)
