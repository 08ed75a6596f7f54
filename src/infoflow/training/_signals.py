"""A request to stop is answered after the running update."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


class TrainingInterrupted(KeyboardInterrupt):
    """Training was asked to stop; its state is saved, and the same call continues it."""

    def __init__(self, update: int, folder: Path) -> None:
        super().__init__(f"Stopped after update {update}. Run the same command again to continue from {folder}.")
        self.update = update
        self.folder = folder


class StopRequest:
    """Whether SIGTERM or Ctrl-C has come."""

    def __init__(self) -> None:
        self.received = False

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        if self.received and signum == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C does not wait
        self.received = True


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catch SIGTERM and Ctrl-C inside the block; outside the main thread signals stay as they are."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request._receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
