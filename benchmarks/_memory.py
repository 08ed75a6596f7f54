"""How much memory this process has held at most."""

import resource
import sys
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
