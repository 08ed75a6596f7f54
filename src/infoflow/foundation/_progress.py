"""A running job: its progress and that of its parts, and the time left at the latest pace."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

_MINUTES = 120.0  # seconds; the pace is measured over the latest time span of at least this length ...
_ENOUGH = 0.1  # ... in which at least this share of the job was done
_KNOWN = 0.002  # share of a job after which its pace predicts the remaining time
_BETWEEN = 1.0  # seconds between two remembered points of the job


@runtime_checkable  # the tests check argument types at run time
class Progress(Protocol):
    def advance(self, amount: float = 1, *, left: float | None = None, **fields: float | str) -> None:
        """Report `amount` more as done, with `fields` (loss, tokens_per_second, ...) for display.

        `left` is the number of remaining seconds, if the caller knows it better than the job's pace would tell.
        """
        ...


class Job:
    """A job that calls `show` at intervals. A job inside another one is a part of it and covers its next unit."""

    def __init__(
        self, label: str, total: float, unit: str = "", seconds_between: float = 10.0, above: "Job | None" = None
    ) -> None:
        self.label, self.total, self.unit, self.done, self.finished = label, total, unit, 0.0, False
        self.fields: dict[str, float | str] = {}
        self.show: Callable[[Job], None] = lambda _: None
        self._between, self._above = seconds_between, above
        self._part: Job | None = None
        self._covered = 0.0  # share of the next unit that completed parts have done
        self._left: tuple[float, float] | None = None
        self._percent = 0.0
        self._start = self._shown = time.monotonic()
        self._points = deque([(self._start, 0.0)])

    def advance(self, amount: float = 1, *, left: float | None = None, **fields: float | str) -> None:
        self.done += amount
        self.fields.update(fields)
        if amount:
            self._covered = 0.0
        if left is not None:
            self._left = left, time.monotonic()
        self._tick()

    def _tick(self) -> None:
        if self._above is not None:
            self._above._tick()
            return
        now = time.monotonic()
        self._remember(now)
        if now - self._shown >= self._between and not self.finished:
            self._shown = now
            self.show(self)

    @contextmanager
    def part(self, label: str, total: float, unit: str = "") -> Iterator["Job"]:
        """Yield a job inside this one, or inside its innermost part."""
        whole = self
        while whole._part is not None:
            whole = whole._part
        whole._part = part = Job(label, total, unit, above=whole)
        try:
            yield part
            part.finished = True
        finally:
            whole._covered = max(whole._covered, part.share)
            whole._part = None

    def finish(self) -> None:
        """Report completion; the total becomes the final count, since it was often an estimate."""
        self.finished = True
        if self.total:
            self.total = self.done
        self.show(self)

    @property
    def reached(self) -> float:
        """Units done, including the share of the next unit that the parts report."""
        part = max(self._covered, self._part.share if self._part else 0.0)
        return self.done + min(part, 1.0, max(self.total - self.done, 0.0))

    @property
    def share(self) -> float:
        if self.finished:
            return 1.0
        return min(self.reached / self.total, 1.0) if self.total else 0.0

    @property
    def percent(self) -> float:
        """Share of the job in percent, or of its time if the caller reports the time left; it never falls."""
        share = self.share
        if self._left is not None and not self.finished:
            left = self.remaining or 0.0
            share = self.elapsed / max(self.elapsed + left, 1e-9)
        self._percent = max(self._percent, 100 * share)
        return self._percent if self.finished else min(self._percent, 99.0)

    @property
    def at(self) -> str:
        """The innermost part that is running now, with its share; empty without parts."""
        part, found = self._part, None
        while part is not None:
            found, part = part, part._part
        return "" if found is None else f"{found.label} {100 * found.share:.0f} %" if found.total else found.label

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    @property
    def rate(self) -> float:
        return self.done / max(self.elapsed, 1e-9)

    @property
    def remaining(self) -> float | None:
        """Remaining seconds; None while almost nothing has been done, or if the total is unknown."""
        if self.finished:
            return 0.0
        if self._left is not None:
            seconds, said = self._left
            return max(seconds - (time.monotonic() - said), 0.0)
        pace = self._pace(time.monotonic())
        return max(self.total - self.reached, 0.0) / pace if self.total and pace else None

    def numbers(self) -> dict[str, float | str | None]:
        left = self.remaining
        return {
            "label": self.label,
            "done": self.done if self.finished else self.reached,
            "total": self.total,
            "unit": self.unit,
            "rate": round(self.rate, 3),
            "seconds": round(self.elapsed, 3),
            "seconds_left": None if left is None else round(left, 3),
            **({"at": self.at} if self.at else {}),
            **self.fields,
        }

    def _remember(self, now: float) -> None:
        if now - self._points[-1][0] >= _BETWEEN:
            self._points.append((now, self.reached))
            # once the second point is old enough to measure the pace from, the first is not needed any more
            while len(self._points) > 2 and self._is_enough(self._points[1], now):
                self._points.popleft()

    def _is_enough(self, point: tuple[float, float], now: float) -> bool:
        return now - point[0] >= _MINUTES and self.reached - point[1] >= _ENOUGH * self.total

    def _pace(self, now: float) -> float:
        """Units per second over the last minutes; 0 if unknown."""
        if self.reached <= _KNOWN * self.total:
            return 0.0
        began, before = self._points[0]
        return max(self.reached - before, 0.0) / max(now - began, 1e-9)
