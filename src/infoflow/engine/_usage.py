"""What a stage takes of the machine, and the threads it may use."""

import os
import platform
import sys
import time

from infoflow.foundation import processor, set_threads

from ._stage import Usage


class Meter:
    """Measures from its making on what this process uses."""

    def __init__(self) -> None:
        self._start, self._cpu = time.monotonic(), _cpu_seconds()

    def usage(self, device: str, threads: int) -> Usage:
        return Usage(
            seconds=round(time.monotonic() - self._start, 3),
            cpu_seconds=round(_cpu_seconds() - self._cpu, 3),
            peak_memory=_peak_memory(),
            host=platform.node(),
            processor=processor(),
            device=device or "cpu",
            threads=_threads_in_use(threads),
        )


def use_threads(threads: int) -> None:
    """Give torch and BLAS that many threads; a torch that is imported later finds the number in the environment."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if "torch" in sys.modules:
        set_threads(threads)


def _threads_in_use(threads: int) -> int:
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else threads


def _cpu_seconds() -> float:
    """Of this process, and of its children as far as they have ended."""
    return time.process_time() + sum(os.times()[2:4])  # the latter in hundredths


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
