"""Sets thread counts in one place, since oversubscription can slow a small model ninefold."""

import os

from ._display import current_display
from ._errors import UserError
from ._limits import Threads, read_setting

_FEW = 16
"""Threads that any machine can start; more than these and than its cores slow it down or crash it."""


def set_threads(num_threads: int | None = None) -> int:
    """Give torch and BLAS `num_threads` threads (default: `OMP_NUM_THREADS`, else the cores this process may use).

    The number is reduced if it far exceeds the cores; returns the number that is set.
    """
    if num_threads is None:
        num_threads = thread_budget()
    wanted = read_setting(Threads, num_threads, "--threads")
    num_threads = min(wanted, _most_threads())
    if num_threads < wanted:
        current_display().note(f"{wanted} threads are more than this machine can use: starting {num_threads}.")
    os.environ["OMP_NUM_THREADS"] = str(num_threads)
    import torch  # not at module level, since `infoflow --help` imports the foundation

    torch.set_num_threads(num_threads)
    from threadpoolctl import threadpool_limits  # NumPy's BLAS read the environment at import

    threadpool_limits(limits=num_threads)
    return num_threads


def thread_budget() -> int:
    """Threads that this process and its children may use together: `OMP_NUM_THREADS`, else the cores."""
    return min(_threads_of_environment() or available_cores(), _most_threads())


def _most_threads() -> int:
    return max(available_cores(), _FEW)


def _threads_of_environment() -> int | None:
    setting = os.environ.get("OMP_NUM_THREADS")
    if not setting:
        return None
    outermost = setting.split(",")[0]  # OpenMP allows one number per nesting level
    number = outermost.strip()
    if not (number.isascii() and number.isdecimal() and len(number) < 10 and int(number) > 0):
        raise UserError(
            f"OMP_NUM_THREADS must be a whole number above 0. Got {setting[:40]}. "
            "Set it to a number of threads, or unset it."
        )
    return int(number)


def available_cores() -> int:
    """Cores that this process may run on, which a container or a batch queue may have reduced."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
