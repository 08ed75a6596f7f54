"""The state of a graph while Dask runs it: running stages, endings, and responsible failures."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from infoflow.foundation import UserError

from ._stage import Ending, Event, Message, Stage, Tally, Usage, as_event
from ._supervisor import StageFailed, Stopped

PATIENCE = 30.0
"""Seconds without a worker, or without an answer, until that is reported."""
WATCH = 5.0
"""Seconds between checks of the workers."""
_LATE = 60.0
"""Seconds that a stage's last messages may take, since they arrive on another path than its ending."""
GONE = "Lost the cluster's scheduler. Finished work is kept; run the same command to continue."


@runtime_checkable
class Future(Protocol):
    """The part of a Dask future that is used."""

    @property
    def status(self) -> str: ...

    def exception(self) -> BaseException | None: ...


@dataclass(kw_only=True, slots=True, eq=False)
class Following:
    """One graph while it runs."""

    stages: Sequence[Stage]
    futures: Mapping[str, Future]
    on_event: Callable[[Event], None]
    endings: dict[str, Ending] = field(default_factory=dict)
    hopeless: bool = False
    running: set[str] = field(default_factory=set)
    next_watch: float = field(default_factory=lambda: time.monotonic() + WATCH)
    next_note: float = field(default_factory=lambda: time.monotonic() + PATIENCE)
    _results: dict[str, Message] = field(default_factory=dict)
    _finished: dict[str, float] = field(default_factory=dict)
    _tally: Tally = field(default_factory=Tally)

    def is_over(self) -> bool:
        return self.hopeless or len(self.endings) == len(self.stages)

    def hear(self, key: str, message: Message) -> None:
        if message["event"] == "done":
            self._results[key] = message
        elif key not in self.endings:
            self.running.add(key)
            self.on_event(as_event(key, message))

    def ended(self) -> list[Stage]:
        """Stages that have ended since the last check."""
        return [stage for stage in self.stages if stage.key not in self.endings and not self._is_open(stage.key)]

    def note(self, ended: Sequence[Stage]) -> None:
        """Record and report how these ended, and skip the rest if that makes it hopeless."""
        for stage in ended:
            self._end(stage, self._ending(stage))
        if self.hopeless:
            for stage in self.stages:
                if stage.key not in self.endings:
                    self._end(stage, Ending(state="stopped"))

    def _is_open(self, key: str) -> bool:
        """Whether the stage runs or waits, or its final message is still on its way."""
        status = self.futures[key].status
        if status == "lost":  # its worker died afterwards; the result is looked up on another one
            return key not in self._results
        if status != "finished" or key in self._results:
            return status == "pending"
        since = self._finished.setdefault(key, time.monotonic())
        return time.monotonic() - since < _LATE

    def _end(self, stage: Stage, ending: Ending) -> None:
        self.endings[stage.key] = ending
        self.running.discard(stage.key)
        self.on_event(Event(kind="end", stage=stage.key, ending=ending))

    def _ending(self, stage: Stage) -> Ending:
        future = self.futures[stage.key]
        if future.status in ("finished", "lost"):
            if stage.key not in self._results:  # its last messages are lost, its files exist
                return Ending(state="done")
            result = self._results[stage.key]
            return Ending(state="done", facts=result["facts"], usage=Usage(**result["usage"]))
        if future.status != "error":
            raise UserError(GONE)
        error = future.exception()
        if isinstance(error, Stopped):
            return Ending(state="stopped")
        if blame := self._blame(stage, error):
            return Ending(state="skipped", because=blame)
        if not isinstance(error, StageFailed):
            error = StageFailed(stage.key, *[f"{type(error).__name__}: {error}"] * 2, "")
        self.hopeless |= self._tally.is_hopeless(error.reason)
        return Ending(state="failed", text=error.text, log=error.log)

    def _blame(self, stage: Stage, error: BaseException | None) -> str:
        """Key of the failed stage that this one needs, or ""."""
        if isinstance(error, StageFailed):
            return error.key if error.key != stage.key else ""
        before = [self.endings[need] for need in stage.needs if need in self.endings]
        blamed = [need for need in stage.needs if need in self.endings and self.endings[need].state == "failed"]
        return next((ending.because for ending in before if ending.because), next(iter(blamed), ""))
