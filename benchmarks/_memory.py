"""How much memory this process has held at most."""

import resource
import sys
import threading
from pathlib import Path


def peak_megabytes() -> float:
    """Peak resident size of this process in MiB.

    On Linux from `/proc`: there `ru_maxrss` of a fresh process begins at the peak of the one that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


class PrivatePeak:
    """Inside `with PrivatePeak() as peak:` the memory that is this process' own is looked at a hundred times a second.

    Pages of files that are mapped, as corpora are, count in a resident size and are the system's to drop.
    """

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "PrivatePeak":
        self._watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._watch.join()

    def _look(self) -> None:
        status = Path("/proc/self/status")
        while status.exists() and not self._done.wait(0.01):
            own = int(status.read_text().partition("RssAnon:")[2].split()[0]) / 1024
            self.megabytes = max(self.megabytes, own)
