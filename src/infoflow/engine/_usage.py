"""Resources that a stage uses, and the threads it may use."""

import os
import platform
import sys
import time

from infoflow.foundation import processor, set_threads

from ._stage import Usage


class Meter:
    """Measures the resources that this process uses from the meter's creation on."""

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
    """Give torch and BLAS that many threads; a later import of torch finds the number in the environment."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if "torch" in sys.modules:
        set_threads(threads)


def _threads_in_use(threads: int) -> int:
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else threads


def _cpu_seconds() -> float:
    """CPU seconds of this process and its ended children."""
    return time.process_time() + sum(os.times()[2:4])  # the latter in hundredths


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
