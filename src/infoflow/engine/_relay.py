"""The display inside a stage, which turns its output into JSON events for the person who waits."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from infoflow.foundation import Progress

from ._stage import Event

Message = dict[str, Any]
"""One event as JSON: `{"event": "progress", ...}`."""


class Relay:
    """A display that passes each event to `tell`, at most one per `seconds_between` for a running job."""

    def __init__(self, tell: Callable[[Message], None], seconds_between: float = 1.0) -> None:
        self._tell, self._between = tell, seconds_between

    def note(self, text: str) -> None:
        self._tell({"event": "note", "text": text})

    def warn(self, text: str) -> None:
        self._tell({"event": "warning", "text": text})

    @contextmanager
    def progress(self, label: str, total: float, unit: str = "") -> Iterator[Progress]:
        job = _Job({"event": "progress", "label": label, "unit": unit}, total, self._tell, self._between)
        yield job
        job.finish()


class _Job:
    """Counts the progress of one `progress` block."""

    def __init__(self, head: Message, total: float, tell: Callable[[Message], None], seconds_between: float) -> None:
        self._head, self._total, self._done = head, total, 0.0
        self._tell, self._between = tell, seconds_between
        self._fields: Message = {}
        self._start = time.monotonic()
        self._told = self._start - seconds_between

    def advance(self, amount: float = 1, **fields: float | str) -> None:
        self._done += amount
        self._fields.update(fields)
        if time.monotonic() - self._told >= self._between:
            self._say()

    def finish(self) -> None:
        """Report the final count as the total, which was often an estimate."""
        if self._total:
            self._total = self._done
        self._say()

    def _say(self) -> None:
        self._told = time.monotonic()
        seconds = max(self._told - self._start, 1e-9)
        rate = self._done / seconds
        left = max(self._total - self._done, 0) / rate if rate else 0.0
        numbers = {"done": self._done, "total": self._total, "rate": rate, "seconds": seconds, "seconds_left": left}
        self._tell({**self._head, **{name: _finite(value) for name, value in {**numbers, **self._fields}.items()}})


def _finite(value: float | str) -> float | str | None:
    """Replace NaN and infinity, which JSON lacks and a diverged loss may be."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_event(stage: str, message: Mapping[str, Any]) -> Event:
    """The event for a stage's message."""
    fields = {name: value for name, value in message.items() if name not in ("event", "text")}
    return Event(kind=message["event"], stage=stage, text=message.get("text", ""), fields=fields)
