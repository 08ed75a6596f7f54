"""Signals, in a module that imports nothing else: `infoflow --help` needs it, and must not wait for numpy."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(
    receive: Callable[[int, FrameType | None], None], signals: Sequence[signal.Signals] = STOPPING
) -> Iterator[None]:
    """SIGTERM and Ctrl-C, or those of `signals`, call `receive` inside the block (main thread only)."""
    before = {number: signal.signal(number, receive) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM, as a batch queue sends it, stops what runs in the block as Ctrl-C does (main thread only)."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with stop_signals(interrupt, (signal.SIGTERM,)):
        yield
