"""Wall time of a study or analysis, summed over all calls that worked on it, including killed ones."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from infoflow.foundation import UserError, atomic_write
from infoflow.results import RunFolder

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
