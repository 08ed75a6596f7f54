"""Files and folders that appear whole or not at all."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ._errors import UserError


@contextmanager
def atomic_write(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is flushed to disk and renamed to `path`.

    After an error or a kill the old `path`, if any, is untouched.

    Raises:
        UserError: Nothing can be made beside `path`.
    """
    path = Path(path)
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    temporary.chmod(0o644)
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path | str, keep_existing: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; on success it replaces `path` as a whole.

    A kill between removing an old folder and the rename leaves no folder, never a mixture of two. With
    `keep_existing` a folder that another process has put there meanwhile stays (for folders named after their
    content: the first writer wins, and nobody's open files vanish).

    Raises:
        UserError: Nothing can be made beside `path`.
    """
    path = Path(path)
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
    temporary.chmod(0o755)
    try:
        yield temporary
        for entry in temporary.rglob("*"):
            _flush(entry)
        _flush(temporary)
        if path.exists() and not keep_existing:
            shutil.rmtree(path)
        try:
            temporary.replace(path)
        except OSError:
            if not (keep_existing and path.is_dir()):
                raise
        _flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Say of an operating system's refusal inside that `path` cannot be written; a full disk is told as such elsewhere.

    Raises:
        UserError: In place of the refusal.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{path} cannot be written: {reason}. Choose another place.") from None


def _flush(path: Path) -> None:
    if os.name == "nt":  # Windows opens no folders, and flushes no file that is open for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
