"""A worker whose study was killed ends too: it would compute for nobody, and meet the study's next start."""

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_ORPHANED = 137  # as if it had been killed with the study


def end_with_parent() -> None:
    """End this process when standard input, a pipe from the study, is closed: at the study's end, however it came.

    Files appear whole or not at all, so nothing has to be put in order. On Linux the kernel ends also a process whose
    threads are all busy in native code.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_wait, name="orphan", daemon=True).start()


def _wait() -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(_ORPHANED)
