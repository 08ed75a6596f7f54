"""The graph of a study: all stages of a plan in order, which of them are missing, and how to run those."""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from infoflow.engine import Engine, Event, InTurn, check_endings
from infoflow.flow import is_first
from infoflow.foundation import FirstTime, Progress, atomic_write, current_display, read_object
from infoflow.results import RunFolder

from ._forecast import Forecast
from ._plan import StudyPlan
from ._study_models import StudyModels
from .stages import AbstractStage, Check, MeasureModel
from .stages import stages as stage_kinds
from .stages._measure import AbstractStudyMeasure

RECORDS = "stages"
_SHARES = 10**6  # resolution of the shares of a GPU
_UNIT = 60.0  # seconds to train a masked LM, until a record exists


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Stages, each of which comes after the stages that it depends on."""

    stages: Sequence[AbstractStage]
    folder: RunFolder

    def __iter__(self) -> Iterator[AbstractStage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def __getitem__(self, key: str) -> AbstractStage:
        return self.by_key[key]

    @property
    def by_key(self) -> Mapping[str, AbstractStage]:
        return {stage.key: stage for stage in self.stages}

    def of(self, kind: type[AbstractStage]) -> list:
        """The stages of one class."""
        return [stage for stage in self.stages if isinstance(stage, kind)]

    def missing(self) -> list[AbstractStage]:
        """The stages that are not done."""
        return [stage for stage in self.stages if not stage.is_done()]

    def records(self) -> list[dict[str, Any]]:
        """What finished stages used, in order: label, kind, wall and CPU seconds, peak memory, host and threads.

        Stages shorter than a twentieth of a second leave no record; records of early versions lack `cpu_seconds`.
        """
        known = records(self.folder)
        return [known[stage.key] for stage in self.stages if stage.key in known]


def graph(plan: StudyPlan | Path | str, out: RunFolder | Path | str, prepared: bool = False) -> Graph:
    """All stages of a plan in the run folder `out`; the data are prepared, but nothing is trained or measured yet.

    Scripts use the graph to run parts of a study: `for stage in graph(plan, out): ...` with `stage.kind`,
    `stage.label`, `stage.is_done()`, `stage.run()`, `stage.tables()`. For `prepared`, see `StudyModels`.
    """
    plan = plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan)
    folder = out if isinstance(out, RunFolder) else RunFolder(out)
    models = StudyModels(plan, folder, prepared)
    stages: list[AbstractStage] = []
    for kind in stage_kinds():
        stages += kind.planned(models, stages)
    needs = tuple(stage.key for stage in stages)
    stages.append(Check(folder=folder, stages=tuple(stages), needs=needs, plugins=plan.plugins))
    costs = Costs(folder, plan)
    return Graph(stages=[costs.on(stage) for stage in stages], folder=folder)


class Costs:
    def __init__(self, folder: RunFolder, plan: StudyPlan) -> None:
        self._seconds = {key: float(record["seconds"]) for key, record in records(folder).items()}
        self._by_kind: dict[str, list[float]] = {}
        for record in records(folder).values():
            if record.get("estimate"):
                self._by_kind.setdefault(record["kind"], []).append(record["seconds"] / record["estimate"])
        self._machine = {"threads": plan.engine.threads, "resources": _resources(plan)}

    def on(self, stage: AbstractStage) -> AbstractStage:
        """The stage with its cost and with the resources that it needs."""
        return replace(stage, cost=self.of(stage), **(self._machine if stage.runs_models else {}))

    def of(self, stage: AbstractStage) -> float:
        """Seconds that the stage took, or an estimate from other stages of its kind."""
        if stage.key in self._seconds:
            return self._seconds[stage.key]
        scale = median(self._by_kind[stage.kind]) if stage.kind in self._by_kind else _UNIT
        return scale * stage.estimate


def keep_record(folder: RunFolder, stage: AbstractStage, usage: Any) -> None:
    if usage.seconds < 0.05:
        return
    record = {
        "kind": stage.kind,
        "label": stage.label,
        "estimate": stage.estimate,
        "seconds": round(usage.seconds, 2),
        "cpu_seconds": round(usage.cpu_seconds, 2),
        "peak_memory": usage.peak_memory,
        "host": usage.host,
        "device": usage.device,
        "threads": usage.threads,
    }
    path = _folder(folder) / f"{stage.key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(record) + "\n", encoding="utf-8")


def records(folder: RunFolder) -> Mapping[str, dict[str, Any]]:
    found = {path.stem: _read(path) for path in sorted(_folder(folder).glob("*.json"))}
    return {key: record for key, record in found.items() if record is not None}


def _folder(folder: RunFolder) -> Path:
    return folder.path / "work" / RECORDS


def _read(path: Path) -> dict[str, Any] | None:
    """A record, or None if it is damaged."""
    try:
        record = read_object(path)
        return record if record["seconds"] > 0 and isinstance(record["kind"], str) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _resources(plan: StudyPlan) -> dict[str, float]:
    """The resources of a stage on a GPU: a whole GPU, or the share that the plan sets."""
    import torch

    on_gpu = plan.training.device.startswith("cuda") or (plan.training.device == "auto" and torch.cuda.is_available())
    return {"GPU": math.floor(_SHARES / plan.engine.per_gpu) / _SHARES} if on_gpu else {}  # rounded down: all must fit


_SHOWN = 4  # number of running stages shown with the bar
_BETWEEN = 1.0  # seconds between two forecasts
_TRAINING = ("train", "read", "warm-reader", "settle", "record-arm")  # kinds of stages that are a single training


def run_stages(stages: Graph, folder: RunFolder, engine: Engine, title: str = "Study", hint: str = "") -> None:
    """Run the missing stages of the graph on an engine that is not open yet; `title` labels the progress bar.

    If stages fail and the graph has measured models, `hint` is added to the message.

    Raises:
        UserError: Stages failed. All stages that do not need them are done, and the same call continues.
        KeyboardInterrupt: The run was interrupted; running stages have saved their state.
    """
    missing = stages.missing()
    for stage in missing:
        stage.check()
    if missing:
        folder.tables.check_replaceable({name for stage in stages for name in stage.schemas()})
    # a finished study needs no processes to judge its claims again
    chosen = InTurn() if all(isinstance(stage, Check) for stage in missing) else engine
    with current_display().progress(title, len(missing)) as progress, chosen as opened:
        reporter = _Reporter(missing, folder, progress)
        # controls last, since a report of an unfinished study shows trained models first
        last = sorted(missing, key=lambda stage: isinstance(stage, AbstractStudyMeasure) and stage.is_control)
        endings = opened.run(last, reporter)
        reporter.close()
    left = {stage.key for stage in missing if stage.key not in endings or endings[stage.key].state != "done"}
    measured = any(isinstance(stage, MeasureModel) and stage.key not in left for stage in stages)
    check_endings(missing, endings, hint if measured else "")


class _Reporter:
    """Displays what stages report: one bar for all, with the running stages, and each note and warning once."""

    def __init__(self, stages: Sequence[AbstractStage], folder: RunFolder, progress: Progress) -> None:
        self._stages = {stage.key: stage for stage in stages}
        self._folder, self._progress = folder, progress
        self._display = current_display()  # kept, since a stage that runs in this process sets another one
        self._running: dict[str, str] = {}
        self._forecast, self._forecast_at = Forecast(stages), -math.inf
        self._is_new, self._repeated = FirstTime(), {"note": set[str](), "warning": set[str]()}

    def __call__(self, event: Event) -> None:
        tell = {"note": self._say, "warning": self._say, "start": self._start, "progress": self._advance}
        (tell | {"end": self._end})[event.kind](event)

    def close(self) -> None:
        """Say how many stages gave a note or warning that was already shown for another stage."""
        for kind, repeated in self._repeated.items():
            if num := len(repeated):
                self._display.note(f"The same {kind}s hold for {num:,} more {'stages' if num > 1 else 'stage'}.")

    def _say(self, event: Event) -> None:
        if not self._is_new(f"{event.kind}: {event.text}"):
            self._repeated[event.kind].add(event.stage)
        elif event.kind == "note":
            self._display.note(self._prefixed(event))
        else:
            self._display.warn(self._prefixed(event))

    def _prefixed(self, event: Event) -> str:
        """The event's text, preceded by the stage's label if the text does not name the stage's model."""
        label = self._stages[event.stage].label if event.stage else ""
        return event.text if label.partition(" ")[2] in event.text else f"{label}: {event.text}"

    def _start(self, event: Event) -> None:
        self._running[event.stage] = ""
        self._forecast.start(event.stage)
        self._show()

    def _advance(self, event: Event) -> None:
        stage, fields = self._stages[event.stage], event.fields
        share = float(fields.get("done") or 0.0) / float(fields.get("total") or 1.0)
        loss = f", loss {fields['loss']}" if fields.get("loss") is not None else ""
        self._running[event.stage] = f" {100 * share:.0f} %{loss}"
        label, measures = str(fields.get("label", "")), not self._forecast.has_seen(stage.kind)
        if (stage.kind in _TRAINING and label.startswith("train")) or (measures and label.startswith("Measuring")):
            self._forecast.advance(event.stage, share)  # other jobs are parts of unknown size
        self._show()

    def _end(self, event: Event) -> None:
        self._running.pop(event.stage, None)
        assert event.ending is not None
        done = event.ending.state == "done"
        if done and event.ending.usage is not None and is_first():
            keep_record(self._folder, self._stages[event.stage], event.ending.usage)
        self._forecast.end(event.stage, done)
        self._show(int(done))

    def _show(self, ended: int = 0) -> None:
        left = None
        if ended or time.monotonic() - self._forecast_at >= _BETWEEN:
            self._forecast_at, left = time.monotonic(), self._forecast.left()
        running = [self._stages[key].label + details for key, details in self._running.items()]
        self._progress.advance(ended, left=left, now=_listed(running))


def _listed(running: Sequence[str]) -> str:
    more = f"; {len(running) - _SHOWN} more" if len(running) > _SHOWN else ""
    return ("; ".join(running[:_SHOWN]) + more) or "next stage"
