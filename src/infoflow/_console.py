"""The console of Windows, in a module that imports nothing of ours: it is told before the first line is printed."""

import os
import sys
from contextlib import suppress
from typing import Any

_UTF8 = 65001


def use_utf8_console() -> None:
    """Let a console of Windows read UTF-8, in which our streams write to it; files and pipes stay as they are.

    Python says that a console takes UTF-8, and means its own way of writing there; our streams write bytes.
    """
    if os.name == "nt" and any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr)):
        with suppress(OSError, AttributeError):
            windows_kernel().SetConsoleOutputCP(_UTF8)


def windows_kernel() -> Any:
    """The functions of `kernel32`, which keep the number of an error."""
    import ctypes

    return ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
