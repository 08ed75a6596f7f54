"""A request to stop (SIGTERM, Ctrl-C, or a call from another thread): resumable work saves and ends."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from infoflow._signals import stop_signals


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
    """Catch SIGTERM and Ctrl-C inside the block; outside the main thread, signals are unchanged.

    Raises:
        KeyboardInterrupt: A signal came and the block ended normally.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    with stop_signals(request._receive):
        yield request
    if request.received:
        raise KeyboardInterrupt


def request_stop() -> None:
    """Request this process to stop from any thread, as SIGTERM does: its handler runs in the main thread."""
    main = threading.main_thread().ident
    if os.name == "nt" or main is None:
        import _thread

        _thread.interrupt_main(signal.SIGTERM)
    else:
        signal.pthread_kill(main, signal.SIGTERM)
