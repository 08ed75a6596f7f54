"""Lets one process at a time create a file or folder while the others wait."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import _platform
from ._display import current_display
from ._files import writable

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF, errno.EPERM)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock of `path` (a file `.NAME.lock` next to it), waiting for its holder; the file is removed afterwards.

    It yields whether there is a lock at all: some network file systems have none, and two processes may then both
    create `path`; the atomic rename at the end keeps it intact.

    Raises:
        UserError: The folder of `path` is not writable.
    """
    file = path.parent / f".{path.name}.lock"
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, alone = _hold(file, path)
    try:
        yield alone
    finally:
        # Remove it while it is held, so that nobody holds a name that another process has created anew.
        with suppress(OSError):
            file.unlink()
        os.close(descriptor)
        if _platform.WINDOWS:  # where open files cannot be removed: this fails if another process has it by now
            with suppress(OSError):
                file.unlink()


def _hold(file: Path, path: Path) -> tuple[int, bool]:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            alone = _lock(descriptor, path)
            if not alone or is_still(file, descriptor):
                return descriptor, alone
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the previous holder has removed the file


def is_still(file: Path, descriptor: int) -> bool:
    """Whether the file of that name is the one that is open."""
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(descriptor: int, path: Path) -> bool:
    try:
        return lock_file(descriptor)
    except BlockingIOError:
        current_display().note(f"Waiting for another infoflow process, which is creating {path}.")
        return lock_file(descriptor, wait=True)


def lock_file(descriptor: int, wait: bool = False) -> bool:
    """Lock an open file until it is closed; returns False if the system or its file system has no locks.

    Raises:
        BlockingIOError: Another process holds the lock, and `wait` is off.
    """
    if _platform.WINDOWS:
        return _platform.lock_on_windows(descriptor, wait)
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True
