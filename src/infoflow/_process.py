"""Settings of the process: signals, the Windows console, freed memory. Imports nothing of ours: `--help` stays fast."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

# Signals, in a module that imports nothing else: `infoflow --help` needs it, and must not wait for numpy.


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
    """Inside the block, SIGTERM (as a batch queue sends it) has the effect of Ctrl-C; only in the main thread."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with stop_signals(interrupt, (signal.SIGTERM,)):
        yield


# The console of Windows: it is set up before the first line is printed.


_UTF8 = 65001


def use_utf8_console() -> None:
    """Set a Windows console to UTF-8, which our streams write; files and pipes are unaffected.

    Python's own console streams do not need this, since they call a wide-character API; ours write bytes.
    """
    if os.name == "nt" and any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr)):
        with suppress(OSError, AttributeError):
            windows_kernel().SetConsoleOutputCP(_UTF8)


def windows_kernel() -> Any:
    """The functions of `kernel32`, which keep the last error code."""
    import ctypes

    return ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]


# Memory that is freed and asked for again in a moment, as each layer of a model does, stays with the process.


# glibc's `mallopt`: what is larger is mapped by itself and given back at once; what lies free on top is kept up to.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_LARGEST = 32 << 20
_KEPT = 512 << 20


def keep_freed_memory() -> bool:
    """Let this process keep up to 512 MB of freed memory; returns whether its allocator supports this (glibc's does).

    Otherwise, every operation maps the memory for its tensors anew, and the system fills each page with zeros. On one
    core of an AMD EPYC this took as long as the matrix products of a small model. Results do not change.
    """
    if sys.platform != "linux":
        return False
    with suppress(OSError, AttributeError):  # another C library
        set_option = ctypes.CDLL(None).mallopt
        return bool(set_option(_MMAP_THRESHOLD, _LARGEST)) and bool(set_option(_TRIM_THRESHOLD, _KEPT))
    return False
