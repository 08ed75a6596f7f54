"""Entries of run.json that describe a study, its wall time, and a display without notes."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from infoflow.foundation import (
    Display,
    Progress,
    UserError,
    atomic_write,
    current_display,
    digest,
    file_digest,
    use_display,
)
from infoflow.report import check_replaceable
from infoflow.results import RunFolder, Subject

from ._graph import Graph
from ._study_models import StudyModels
from .stages import AbstractStage, Check, MeasureModel, Train

# Wall time of a study or analysis, summed over all calls that worked on it, including killed ones.


CLOCK_FILE = ".seconds"
_EVERY = 10.0
"""Seconds between two writes, hence the most that a killed call loses."""


class WallClock:
    """Seconds of this call and of all calls."""

    def __init__(self, file: Path, before: float) -> None:
        self._file, self._before, self._started = file, before, time.monotonic()

    @property
    def this_call(self) -> float:
        return time.monotonic() - self._started

    @property
    def all_calls(self) -> float:
        return self._before + self.this_call

    def save(self) -> None:
        # The run's own writes report a full disk.
        with suppress(OSError, UserError), atomic_write(self._file) as path:
            path.write_text(f"{self.all_calls:.1f}\n", encoding="utf-8")


@contextmanager
def wall_clock(run: RunFolder, save: bool = True) -> Iterator[WallClock]:
    """A clock that continues where the last call on `run` ended or was killed; `save` stores its time there."""
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
    """Reset the clock: what follows is a new analysis."""
    WallClock(run.path / CLOCK_FILE, before=0.0).save()


def seconds_before(run: RunFolder) -> float:
    """Seconds of all calls that have worked on the run."""
    with suppress(OSError, ValueError):
        return float((run.path / CLOCK_FILE).read_text(encoding="utf-8"))
    return float(run.read().get("seconds") or 0.0)


# A display that passes on progress and problems, and drops mere notes.


class _WithoutNotes:
    """Everything else goes to `display`."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def note(self, text: str) -> None:
        pass

    def warn(self, text: str) -> None:
        self._display.warn(text)

    def progress(self, label: str, total: float, unit: str = "") -> AbstractContextManager[Progress]:
        return self._display.progress(label, total, unit)


@contextmanager
def without_notes() -> Iterator[None]:
    """Inside the block, notes are dropped: a study would repeat them for dozens of models."""
    with use_display(_WithoutNotes(current_display())):
        yield


# Entries of run.json that describe a study, and the partial run of an unfinished study.


SO_FAR = "so-far"
_OF_THE_STUDY = ("kind", "plan", "files", "anonymous", "provenance")  # entries of its run.json


def study_facts(
    stages: Sequence[AbstractStage],
    models: StudyModels,
    split: Mapping[str, Any],
    timings: Mapping[str, float],
    records: Sequence[Mapping[str, Any]],
    seconds: float,
) -> dict[str, Any]:
    """Entries of run.json: the corpus, the models, and the cost.

    Args:
        stages: The finished stages.
        models: The models of the study.
        split: Result of `split_facts` for them.
        timings: Seconds by name; the total of all trainings is added.
        records: Usage of the stages, as in `Graph.records`.
        seconds: Seconds of all calls.
    """
    data = models.data
    trainings = [stage for stage in stages if isinstance(stage, Train)]
    trained = [{**Subject(recipe=stage.recipe).keys(), **stage.facts()} for stage in trainings]
    timings = {**timings, "training (sum over models)": sum(row["seconds"] for row in trained)}
    parts: dict[str, Any] = {"train": data.train, "validation": data.validation, "test": data.test}
    sizes = {name: len(part) for name, part in parts.items()} | {"analysed": len(data.analysed)}
    other = data.other_domain
    return {
        "corpus": {
            "name": models.plan.corpus.name,
            "digest": data.train.digest,
            "sentences": sum(len(part) for part in parts.values()),
            "words": int(sum(part.word_counts.sum() for part in parts.values())),
            "parts": sizes,
            "split": dict(split),
            **({} if other is None else {"other_domain": {"digest": other.digest, "sentences": len(other)}}),
        },
        "models": [{**row, "sha256": _weights_digest(models, row["model"])} for row in trained],
        "timings": {name: round(value, 1) for name, value in timings.items()},
        "stages": list(records),
        "seconds": round(seconds, 1),
        "failures": [asdict(failure) for stage in stages for failure in stage.failures()],
    }


def split_facts(models: StudyModels) -> dict[str, Any]:
    """How the corpus was split; all processes of a study call this at the same time."""
    return models.bench.facts("parts", digest([1, models.data.key]), models.data.parts.facts)


def _weights_digest(models: StudyModels, model: str) -> str:
    return file_digest(models.run.models / model / "model.safetensors")


def so_far(run: RunFolder, stages: Graph) -> RunFolder:
    """See `Run.so_far`; `stages` are the stages of the study in `run`."""
    works = [stage for stage in stages if not isinstance(stage, Check)]
    done = [stage for stage in works if stage.is_done()]
    if not any(isinstance(stage, MeasureModel) for stage in done):
        raise UserError(
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
    Check(folder=folder, stages=done).run()
    return folder


def _unfinished(works: Sequence[AbstractStage], done: Sequence[AbstractStage]) -> str:
    """Missing stages, by kind."""
    missing = Counter(stage.kind for stage in works) - Counter(stage.kind for stage in done)
    kinds = ", ".join(f"{kind} ({number:,})" for kind, number in missing.most_common()) or "only the final steps"
    return f"The study is running or was stopped. Missing: {kinds}. Results may change."
