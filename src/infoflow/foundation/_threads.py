"""Thread counts, set in one place: oversubscription can slow a small model ninefold."""

import os

from ._errors import UserError


def set_threads(num_threads: int | None = None) -> int:
    """Give torch and BLAS `num_threads` threads (default: `OMP_NUM_THREADS`, else the cores this process may use)."""
    if num_threads is None:
        num_threads = thread_budget()
    if num_threads < 1:
        raise UserError(f"--threads must be at least 1. Got {num_threads}.")
    os.environ["OMP_NUM_THREADS"] = str(num_threads)
    import torch  # not at module level: the foundation is imported by `infoflow --help`

    torch.set_num_threads(num_threads)
    from threadpoolctl import threadpool_limits  # NumPy's BLAS read the environment when it was imported

    threadpool_limits(limits=num_threads)
    return num_threads


def thread_budget() -> int:
    """Threads that this process and those it starts may use together: `OMP_NUM_THREADS`, else the cores."""
    return _threads_of_environment() or available_cores()


def _threads_of_environment() -> int | None:
    setting = os.environ.get("OMP_NUM_THREADS")
    if not setting:
        return None
    outermost = setting.split(",")[0]  # OpenMP allows one number for each nesting level
    if not outermost.strip().isdecimal():
        raise UserError(
            f"OMP_NUM_THREADS must be a number. Got {setting!r}. Set it to a number of threads, or unset it."
        )
    return int(outermost)


def available_cores() -> int:
    """Cores that this process may run on, which a container or a batch queue may have reduced."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
