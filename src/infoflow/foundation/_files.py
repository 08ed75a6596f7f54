"""Files and folders that appear whole or not at all."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import _platform
from ._errors import UserError

_PARTIAL = ".partial"
_LONGEST_NAME = 255  # bytes, on every common file system


@contextmanager
def atomic_write(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is flushed to disk and renamed to `path`.

    After an error or a kill the old `path`, if any, is untouched. The file's mode follows the umask.

    Raises:
        UserError: Nothing can be made beside `path`, or a folder has its name.
    """
    path = Path(path)
    if os.path.isdir(path):  # noqa: PTH112 (no error for names that are too long)
        raise UserError(f"{path} is a folder where a file is to be written. Move it away, and give the command again.")
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(path)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    mode = stat.S_IMODE(temporary.stat().st_mode)
    try:
        yield temporary
        temporary.chmod(mode)  # libraries that replace the file make it private
        _flush(temporary)
        _platform.replace(temporary, path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path | str, keep_existing: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; on success it replaces `path` as a whole.

    A kill between removing an old folder and the rename leaves no folder, never a mixture of two. With
    `keep_existing` a folder that another process has put there meanwhile stays (for folders named after their
    content: the first writer wins, and nobody's open files vanish). Modes of all that is inside follow the umask.

    Raises:
        UserError: Nothing can be made beside `path`.
    """
    path = Path(path)
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(path)
        temporary.mkdir()
    mode = stat.S_IMODE(temporary.stat().st_mode)
    try:
        yield temporary
        for entry in temporary.rglob("*"):
            if not entry.is_symlink():
                entry.chmod(mode if entry.is_dir() else mode & 0o666)
            _flush(entry)
        _flush(temporary)
        if path.exists() and not keep_existing:
            _remove_old(path)
        try:
            _platform.replace(temporary, path)
        except (OSError, UserError):
            if not (keep_existing and path.is_dir()):
                raise
        _flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sweep_partial(folder: Path) -> None:
    """Remove what killed processes left half-written under `folder`; what a living one is writing stays.

    Only for a folder whose lock is held: the temporary names tell processes of this machine alone apart.
    """
    for path in list(folder.rglob(f".*{_PARTIAL}")):
        writer = path.name.removesuffix(_PARTIAL).rpartition(".")[2].partition("-")[0]
        if writer.isdecimal() and _platform.is_alive(int(writer)):
            continue
        with suppress(OSError):
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all it holds."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """A hidden name that says whose it is, in the same folder so that a rename is atomic.

    Raises:
        OSError: The name of `path` itself is too long.
    """
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    ending = f".{os.getpid()}-{secrets.token_hex(4)}{_PARTIAL}"
    start = os.fsencode(path.name)[: _LONGEST_NAME - len(ending) - 1].decode(errors="ignore")
    return path.with_name(f".{start}{ending}")


def _remove_old(path: Path) -> None:
    """On Windows only as a whole: a folder in which a file is open cannot be renamed, and stays as it is."""
    if _platform.WINDOWS:
        aside = _beside(path)
        _platform.replace(path, aside, named=path)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        shutil.rmtree(path)


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
    if _platform.WINDOWS:  # which opens no folders, and flushes no file that is open for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
