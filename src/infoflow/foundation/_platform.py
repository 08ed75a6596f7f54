"""Differences of Windows from POSIX: open files, process checks and locks."""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from infoflow._console import windows_kernel

from ._errors import UserError

WINDOWS = os.name == "nt"
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds: virus scanners and indexers hold a new file open for a moment."""
_LOCKED_BYTE = 1 << 30
"""Offset of the locked byte, beyond the end of any locked file, since locks of Windows also prevent reading."""
_HELD = (errno.EACCES, errno.EDEADLK, 0)
_SYNCHRONIZE, _STILL_RUNS, _NO_SUCH_PROCESS = 0x0010_0000, 0x102, 87


def replace(source: Path, target: Path, named: Path | None = None) -> None:
    """Rename `source` to `target`, replacing it; waits a little for open files, which Windows cannot rename or replace.

    Raises:
        UserError: Another program keeps a file open there (on Windows); the message names `target`, or `named`.
    """
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
    """Whether a process of that number runs on this machine; True if unknown."""
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
        """`MEMORYSTATUSEX`."""

        _fields_ = (
            *(("length", ctypes.c_uint32), ("load", ctypes.c_uint32)),
            *(("memory", ctypes.c_uint64), ("free_memory", ctypes.c_uint64)),
            *(("all", ctypes.c_uint64), ("free", ctypes.c_uint64)),
            *(("addresses", ctypes.c_uint64), ("free_addresses", ctypes.c_uint64), ("extended", ctypes.c_uint64)),
        )

    status = Status(length=ctypes.sizeof(Status))
    return int(status.free) if windows_kernel().GlobalMemoryStatusEx(ctypes.byref(status)) else None


def lock_on_windows(descriptor: int, wait: bool) -> bool:
    """`lock_file` by one byte of the file; False without locks.

    Raises:
        BlockingIOError: Another process holds the lock, and `wait` is off.
    """
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
