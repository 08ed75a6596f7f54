"""Hands the missing stages of a graph to an engine, with one progress bar and all failures reported at the end."""

import time
from collections.abc import Iterable, Sequence

from infoflow.engine import Engine, Event, InTurn, check_endings
from infoflow.flow import is_first
from infoflow.foundation import Progress, current_display
from infoflow.results import RunFolder

from ._graph import Graph, keep_record
from .stages import AbstractStage, Check, MeasureModel, ProbeModel

_SHOWN = 4  # running stages shown with the bar
_TRAINING = (
    "train",
    "read",
    "warm-reader",
    "settle",
    "record-arm",
)  # kinds of stages that are a single training: its progress is that of the stage
_BY_CLOCK = 0.95  # maximum share of a running stage's cost that counts before it ends


def run_stages(stages: Graph, folder: RunFolder, engine: Engine, title: str = "Study", hint: str = "") -> None:
    """Run the missing stages of the graph on an engine that is not open yet; `title` labels the bar.

    `hint` follows the report of failed stages in which a model of a study is measured.

    Raises:
        UserError: Stages failed; stages that do not need them are done, and the same call continues.
        KeyboardInterrupt: It was interrupted; running stages have saved.
    """
    missing = stages.missing()
    for stage in missing:
        stage.check()
    if missing:
        folder.tables.check_replaceable({name for stage in stages for name in stage.schemas()})
    cost = sum(stage.cost for stage in missing)
    # a finished study needs no processes to judge its claims again
    chosen = InTurn() if all(isinstance(stage, Check) for stage in missing) else engine
    with current_display().progress(title, cost) as progress, chosen as opened:
        endings = opened.run(_controls_last(missing), _Told(missing, folder, progress))
    left = {stage.key for stage in missing if stage.key not in endings or endings[stage.key].state != "done"}
    measured = any(isinstance(stage, MeasureModel) and stage.key not in left for stage in stages)
    check_endings(missing, endings, hint if measured else "")


def _controls_last(stages: Iterable[AbstractStage]) -> list[AbstractStage]:
    """Measure trained models before their controls, since a report of an unfinished study shows them first."""
    return sorted(stages, key=lambda stage: isinstance(stage, MeasureModel | ProbeModel) and not stage.subject.trained)


class _Told:
    """Displays the progress that stages report: one bar for all, and the stages that run now."""

    def __init__(self, stages: Iterable[AbstractStage], folder: RunFolder, progress: Progress) -> None:
        self._stages = {stage.key: stage for stage in stages}
        self._folder, self._progress = folder, progress
        self._display = current_display()  # while a stage runs in this process, another one is current
        self._running: dict[str, str] = {}
        self._shares: dict[str, float] = {}
        self._started: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        if event.kind in ("note", "warning"):
            prefix = f"{self._stages[event.stage].label}: " if event.stage else ""
            {"note": self._display.note, "warning": self._display.warn}[event.kind](prefix + event.text)
            return
        {"start": self._start, "progress": self._advance, "end": self._end}[event.kind](event)

    def _start(self, event: Event) -> None:
        self._running[event.stage] = ""
        self._started[event.stage] = time.monotonic()
        self._show(event.stage, 0.0)

    def _advance(self, event: Event) -> None:
        stage, fields = self._stages[event.stage], event.fields
        share = float(fields.get("done") or 0.0) / float(fields.get("total") or 1.0)
        loss = f", loss {fields['loss']}" if fields.get("loss") is not None else ""
        self._running[event.stage] = f" {100 * share:.0f} %{loss}"
        whole = stage.kind in _TRAINING and str(fields.get("label", "")).startswith("train")
        self._show(event.stage, share if whole else self._by_clock(event.stage))

    def _end(self, event: Event) -> None:
        self._running.pop(event.stage, None)
        assert event.ending is not None
        done = event.ending.state == "done"
        if done and event.ending.usage is not None and is_first():
            keep_record(self._folder, self._stages[event.stage], event.ending.usage)
        self._show(event.stage, 1.0 if done else 0.0)

    def _by_clock(self, key: str) -> float:
        """The share of the stage's estimated seconds that has passed since its start.

        Such a stage reports parts of unknown size. Without this, a long one would stall the bar, and the remaining
        time, which follows from the rate, would grow without end.
        """
        seconds = time.monotonic() - self._started.get(key, time.monotonic())
        return min(seconds / max(self._stages[key].cost, 1e-9), _BY_CLOCK)

    def _show(self, key: str, share: float) -> None:
        """Show that `share` (0..1) of the stage is done."""
        gained = max(share - self._shares.get(key, 0.0), 0.0)
        self._shares[key] = self._shares.get(key, 0.0) + gained
        self._progress.advance(gained * self._stages[key].cost, now=_listed(self._names()))

    def _names(self) -> list[str]:
        return [self._stages[key].label + details for key, details in self._running.items()]


def _listed(running: Sequence[str]) -> str:
    more = f"; {len(running) - _SHOWN} more" if len(running) > _SHOWN else ""
    return ("; ".join(running[:_SHOWN]) + more) or "next stage"
