"""The machine: peculiarities of Windows, memory, threads, variables set by launchers, and requests to stop."""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from infoflow._process import stop_signals, windows_kernel

from ._display import current_display
from ._errors import UserError
from ._limits import Threads, read_setting

WINDOWS = os.name == "nt"
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds: virus scanners and indexers hold a new file open for a moment
_LOCKED_BYTE = 1 << 30
"""Offset of the locked byte, beyond the end of any locked file, since locks of Windows also prevent reading."""
_HELD = (errno.EACCES, errno.EDEADLK, 0)
_SYNCHRONIZE, _STILL_RUNS, _NO_SUCH_PROCESS = 0x0010_0000, 0x102, 87


def replace(source: Path, target: Path, named: Path | None = None) -> None:
    """Rename `source` to `target`, replacing it; waits until open files that block this on Windows are closed."""
    for pause in _PAUSES if WINDOWS else ():
        with suppress(PermissionError):
            source.replace(target)
            return
        time.sleep(pause)
    try:
        source.replace(target)
    except PermissionError:
        if not WINDOWS:
            raise
        raise UserError(
            f"{named or target} is open in another program and cannot be replaced. Close it there, and "
            "run the command again."
        ) from None


def is_alive(process: int) -> bool:
    """Whether a process with this number is running on this machine; True if unknown."""
    if WINDOWS:  # where `os.kill(process, 0)` sends Ctrl-C
        return _is_alive_on_windows(process)
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # belongs to another user
        return True
    return True


def _is_alive_on_windows(process: int) -> bool:
    import ctypes

    if process >= 1 << 32:
        return False
    kernel = windows_kernel()
    kernel.OpenProcess.restype = ctypes.c_void_p
    handle = kernel.OpenProcess(_SYNCHRONIZE, False, ctypes.c_ulong(process))
    if not handle:
        return ctypes.get_last_error() != _NO_SUCH_PROCESS  # type: ignore[attr-defined]
    try:
        return kernel.WaitForSingleObject(ctypes.c_void_p(handle), 0) == _STILL_RUNS
    finally:
        kernel.CloseHandle(ctypes.c_void_p(handle))


def memory_on_windows() -> int | None:
    """Bytes that processes may still allocate on Windows, including swap; None elsewhere."""
    if not WINDOWS:
        return None
    import ctypes

    class Status(ctypes.Structure):
        """The Windows structure `MEMORYSTATUSEX`."""

        _fields_ = (
            *(("length", ctypes.c_uint32), ("load", ctypes.c_uint32)),
            *(("memory", ctypes.c_uint64), ("free_memory", ctypes.c_uint64)),
            *(("all", ctypes.c_uint64), ("free", ctypes.c_uint64)),
            *(("addresses", ctypes.c_uint64), ("free_addresses", ctypes.c_uint64), ("extended", ctypes.c_uint64)),
        )

    status = Status(length=ctypes.sizeof(Status))
    return int(status.free) if windows_kernel().GlobalMemoryStatusEx(ctypes.byref(status)) else None


def lock_on_windows(descriptor: int, wait: bool) -> bool:
    """`lock_file` for Windows: locks one byte of the file; returns False if locks are not supported."""
    import msvcrt

    locking: Callable[[int, int, int], None] = msvcrt.locking  # type: ignore[attr-defined]
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        while True:
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            try:
                locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
                return True
            except OSError as error:
                if error.errno not in _HELD:
                    return False
            if not wait:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            time.sleep(_PAUSES[1])
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)


_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def available_memory() -> int | None:
    """Bytes that the machine, the container and the shell's limits leave available; None if unknown."""
    sizes = [_of_machine(), _of_container(), _of_limits(), memory_on_windows()]
    return min((size for size in sizes if size is not None), default=None)


def said_size(number: float) -> str:
    """A number of bytes in readable units: 1.2 GB, 35.0 MB, 3.4 kB."""
    unit, least = next((one for one in _UNITS if number >= one[1] / 10), _UNITS[-1])
    return f"{number / least:,.1f} {unit}"


def require_memory(size: float, what: str, advice: str) -> None:
    """Refuse work that would run out of memory halfway.

    Args:
        size: Minimum number of bytes.
        what: What needs the bytes, and how they add up; begins the message.
        advice: What the user can do; ends the message.
    """
    available = available_memory()
    if available is not None and size > available:
        raise UserError(
            f"{what}: at least {said_size(size)} of memory. This machine has {said_size(available)} available. {advice}"
        )


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        entries = dict(line.split(":", 1) for line in lines)
        return (int(entries["MemAvailable"].split()[0]) + int(entries["SwapFree"].split()[0])) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _of_container() -> int | None:
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            numbers = [int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii")) for name in (most, used)]
        except (OSError, ValueError):  # no such file, or "max"
            continue
        return max(numbers[0] - numbers[1], 0)
    return None


def _of_limits() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return None if most == resource.RLIM_INFINITY else most


# Thread counts are set in one place, since oversubscription can slow a small model ninefold.
_FEW = 16  # threads that any machine can start; more than this and more than its cores slow it down or crash it


def set_threads(num_threads: int | None = None) -> int:
    """Give torch and BLAS `num_threads` threads (default: `OMP_NUM_THREADS`, else the cores this process may use).

    The number is reduced if it far exceeds the number of cores. Returns the number that was set.
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
    """Cores that this process may use, which a container or a batch queue may limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# The variables that a launcher (`torchrun`, `accelerate launch`) sets for each process, read in one place.
_MOST = 1_000_000


def launched() -> tuple[int, int]:
    """(rank, number of processes) of this process; (0, 1) without a launcher."""
    if not os.environ.get("RANK") and not os.environ.get("WORLD_SIZE"):
        return 0, 1
    rank, size = _number("RANK", 0, _MOST), _number("WORLD_SIZE", 1, _MOST)
    if rank >= size:
        raise UserError(f"RANK must be below WORLD_SIZE. Got {rank} of {size}. {_ADVICE}")
    if size > 1:
        _number("MASTER_PORT", 0, 65535)
        if not os.environ.get("MASTER_ADDR"):
            raise UserError(f"MASTER_ADDR must name the machine of the first process. It is not set. {_ADVICE}")
    return rank, size


def local_rank() -> int:
    """Number of this process on its machine, which also selects its GPU; the rank if the launcher does not set it."""
    return _number("LOCAL_RANK", 0, _MOST) if os.environ.get("LOCAL_RANK") else launched()[0]


_ADVICE = "Start all processes with torchrun, or unset RANK and WORLD_SIZE for one process."


def _number(name: str, least: int, most: int) -> int:
    text = os.environ.get(name, "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        got = f"Got {text[:40]}." if text else "It is not set."
        raise UserError(f"{name}, which torchrun sets, must be a number from {least} to {most:,}. {got} {_ADVICE}")
    return int(text)


class StopRequest:
    """Records whether SIGTERM or Ctrl-C was received."""

    def __init__(self) -> None:
        self.received = False

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        if self.received and signum == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C does not wait
        self.received = True


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catch SIGTERM and Ctrl-C inside the block; outside the main thread, signals are unchanged.

    Raises:
        KeyboardInterrupt: A signal came and the block ended normally.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    with stop_signals(request._receive):
        yield request
    if request.received:
        raise KeyboardInterrupt


def request_stop() -> None:
    """Request this process to stop from any thread, as SIGTERM does: its handler runs in the main thread."""
    main = threading.main_thread().ident
    if os.name == "nt" or main is None:
        import _thread

        _thread.interrupt_main(signal.SIGTERM)
    else:
        signal.pthread_kill(main, signal.SIGTERM)
