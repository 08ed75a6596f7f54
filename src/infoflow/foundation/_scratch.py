"""Temporary folders that disappear even if their process is killed, since the next process removes them."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ._files import disk_named
from ._locks import is_still, lock_file

_PREFIX, _OWNER = "infoflow-", ".owner"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for large intermediate files in the system's temporary folder, removed after the block."""
    folder, remove = new_scratch_folder()
    try:
        with disk_named(folder):
            yield folder
    finally:
        remove()


def new_scratch_folder() -> tuple[Path, Callable[[], None]]:
    """A new scratch folder and the function that removes it; folders of killed processes are removed first.

    A process holds a lock in its folder as long as it lives, so the lock of a killed one is free. Without locks in the
    file system, each process removes only its own folder.
    """
    home = Path(tempfile.gettempdir())
    for left in home.glob(_PREFIX + "?" * 8) if os.name != "nt" else ():
        with suppress(OSError):
            _remove_ownerless(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            descriptor = _owned(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if descriptor is not None:
            break

    def remove() -> None:
        with suppress(OSError):
            os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)

    return folder, remove


def _owned(folder: Path) -> int | None:
    """The open lock of a new folder; None if another process mistakes the folder for a killed one's and removes it."""
    with suppress(FileNotFoundError):
        descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            if not lock_file(descriptor) or is_still(folder / _OWNER, descriptor):
                return descriptor
        os.close(descriptor)
    return None


def _remove_ownerless(folder: Path) -> None:
    """Remove one of our folders whose process is gone.

    Raises:
        OSError: The folder is foreign, or its process lives.
    """
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    if not any(folder.iterdir()):  # its process died, or is about to create another one
        folder.rmdir()
    descriptor = os.open(folder / _OWNER, os.O_RDWR)
    try:
        if lock_file(descriptor):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
