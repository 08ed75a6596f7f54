"""What is missing of a graph is handed to an engine; people see one bar, and every failure at the end."""

import time
from collections.abc import Iterable, Sequence

from infoflow.engine import Engine, Event, InTurn, check_endings
from infoflow.flow import is_first
from infoflow.foundation import Progress, current_display
from infoflow.results import RunFolder

from ._costs import keep_record
from ._graph import Graph
from .stages import AbstractStage, Check, MeasureModel

_SHOWN = 4  # running stages beside the bar
_TRAINING = (
    "train",
    "read",
    "warm-reader",
    "settle",
    "record-arm",
)  # kinds of stages that are one training: a share of it is a share of the stage
_BY_CLOCK = 0.95  # of a running stage's cost counts at most, before it has ended


def run_stages(stages: Graph, folder: RunFolder, engine: Engine, title: str = "Study", hint: str = "") -> None:
    """Do what is missing of the graph on an engine that is not open yet; `title` stands before the bar.

    `hint` follows what is told of failed stages, where a model of a study is measured.

    Raises:
        UserError: Stages failed; what did not need them is done, and the same call goes on.
        KeyboardInterrupt: It was interrupted; running stages have saved.
    """
    missing = stages.missing()
    cost = sum(stage.cost for stage in missing)
    # A study that is done opens no processes to judge its claims again.
    chosen = InTurn() if all(isinstance(stage, Check) for stage in missing) else engine
    with current_display().progress(title, cost) as progress, chosen as opened:
        endings = opened.run(missing, _Told(missing, folder, progress))
    left = {stage.key for stage in missing if stage.key not in endings or endings[stage.key].state != "done"}
    measured = any(isinstance(stage, MeasureModel) and stage.key not in left for stage in stages)
    check_endings(missing, endings, hint if measured else "")


class _Told:
    """Passes on what stages tell: one bar for all of them, what runs now beside it."""

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
        """The share that the seconds since the start make of the stage's cost, which is in seconds.

        What such a stage tells are parts of unknown size. Without this, a long one leaves the bar where it was, and
        the time left, which follows from the rate, grows without end.
        """
        seconds = time.monotonic() - self._started.get(key, time.monotonic())
        return min(seconds / max(self._stages[key].cost, 1e-9), _BY_CLOCK)

    def _show(self, key: str, share: float) -> None:
        """`share` (0..1) of the stage is done."""
        gained = max(share - self._shares.get(key, 0.0), 0.0)
        self._shares[key] = self._shares.get(key, 0.0) + gained
        self._progress.advance(gained * self._stages[key].cost, now=_listed(self._names()))

    def _names(self) -> list[str]:
        return [self._stages[key].label + details for key, details in self._running.items()]


def _listed(running: Sequence[str]) -> str:
    more = f"; {len(running) - _SHOWN} more" if len(running) > _SHOWN else ""
    return ("; ".join(running[:_SHOWN]) + more) or "next stage"
