"""One process at a time makes a file or folder; the others wait."""

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
    """Hold the lock of `path` (a file `.NAME.lock` beside it), waiting for who holds it; it is gone afterwards.

    Yields whether there is a lock at all: some network file systems have none, and there two processes may both make
    what `path` names; the atomic rename at the end keeps it whole.

    Raises:
        UserError: Nothing can be made beside `path`.
    """
    file = path.parent / f".{path.name}.lock"
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, alone = _hold(file, path)
    try:
        yield alone
    finally:
        # While it is held, so that nobody holds a name that another process has taken anew.
        with suppress(OSError):
            file.unlink()
        os.close(descriptor)
        if _platform.WINDOWS:  # where nobody loses an open file: it is refused if another has it by now
            with suppress(OSError):
                file.unlink()


def _hold(file: Path, path: Path) -> tuple[int, bool]:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            alone = _lock(descriptor, path)
            if not alone or _is_still(file, descriptor):
                return descriptor, alone
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # who held it before has removed the file


def _is_still(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(descriptor: int, path: Path) -> bool:
    try:
        return lock_file(descriptor)
    except BlockingIOError:
        current_display().note(f"Another infoflow makes {path}: waiting for it.")
        return lock_file(descriptor, wait=True)


def lock_file(descriptor: int, wait: bool = False) -> bool:
    """Take the lock of an open file, which ends with it; False where the system or its file system has none.

    Raises:
        BlockingIOError: Another process holds it, and `wait` is off.
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
