"""Temporary folders, and sealed reproducible folders that one process creates while others wait."""

import errno
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import xxhash

from . import _machine
from ._display import current_display
from ._files import atomic_folder, disk_named, read_object, remove, writable

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF, errno.EPERM)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock of `path`, after waiting for its holder; the lock file `.NAME.lock` is removed afterwards.

    It yields whether there is a lock at all. Some network file systems have no locks, so two processes may both create
    `path`, but the atomic rename at the end keeps it intact.
    """
    file = path.parent / f".{path.name}.lock"
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, alone = _hold(file, path)
    try:
        yield alone
    finally:
        # Remove the file while it is locked, so that nobody locks a name that another process has created anew.
        with suppress(OSError):
            file.unlink()
        os.close(descriptor)
        if _machine.WINDOWS:  # open files cannot be removed there; this fails if another process has it by now
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
    """Lock an open file until it is closed; returns False if the system or the file system has no locks."""
    if _machine.WINDOWS:
        return _machine.lock_on_windows(descriptor, wait)
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


# Temporary folders that disappear even if their process is killed, since the next process removes them.
_PREFIX, _OWNER = "infoflow-", ".owner"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder for large intermediate files in the system's temporary folder, removed after the block."""
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
    """The open lock of a new folder; None if another process takes the folder for a dead one's and removes it."""
    with suppress(FileNotFoundError):
        descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            if not lock_file(descriptor) or is_still(folder / _OWNER, descriptor):
                return descriptor
        os.close(descriptor)
    return None


def _remove_ownerless(folder: Path) -> None:
    """Remove a scratch folder of this user if its process is gone."""
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


SEAL = "seal.json"
"""File in a sealed folder with the size and checksum of each of its other files."""
PARTIAL_SECONDS = 24 * 3600
"""Age from which a partial file counts as left by a killed process, even if the process may be alive."""

_CHUNK = 1 << 20
_LARGEST_SEAL = 1 << 20  # bytes; a folder holds a few files

_agreed: dict[Path, Any] = {}  # folders checked by this process, with the system's status of their files


def kept(folder: Path, make: Callable[[Path], object], what: str) -> Path:
    """Return `folder`, filled by `make` unless it exists and agrees with its seal; all caches are opened with it.

    `make` fills an empty folder, which is then sealed and renamed. One process does this while others wait. A damaged
    folder is made again, with a note that names `what`. Each process reads a folder's files once to check them (0.1 ms
    for a megabyte in the page cache).
    """
    if disagreement(folder) is None:
        return folder
    with locked(folder) as alone:
        if (reason := disagreement(folder)) is None:
            return folder  # another process made it meanwhile
        if os.path.lexists(folder):
            current_display().note(f"{what} in {folder} is recreated: {reason}.")
        sweep_stale(folder.parent, [folder.name] if alone else ())
        with atomic_folder(folder, keep_existing=True) as temporary:
            make(temporary)
            seal(temporary)
            if disagreement(folder) is not None:
                remove(folder)
    return folder


@contextmanager
def sealed_folder(path: Path) -> Iterator[Path]:
    """Like `atomic_folder`, with a seal that `disagreement` can check later."""
    with atomic_folder(path) as folder:
        yield folder
        seal(folder)


def seal(folder: Path) -> None:
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    entries = {name: [path.stat().st_size, _checksum(path)] for name, path in files.items() if name != SEAL}
    content = {"files": entries, "checksum": _text_checksum(entries)}
    (folder / SEAL).write_text(json.dumps(content), encoding="utf-8")


def disagreement(folder: Path) -> str | None:
    """How `folder` differs from its seal; None if it does not."""
    try:
        entries = _entries(folder)
        if entries is None:
            return f"{SEAL} is missing or damaged"
        if missing := [name for name in entries if not _is_file(folder / name)]:
            return f"{missing[0]} is missing"
        signature = [_signature(folder / name) for name in (SEAL, *entries)]
        if _agreed.get(folder) == signature:
            return None
        for name, (size, checksum) in entries.items():
            if (found := (folder / name).stat().st_size) != size:
                return f"{name} has {found:,} bytes instead of {size:,}"
            if _checksum(folder / name) != checksum:
                return f"{name} has another checksum"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    _agreed[folder] = signature
    return None


def sweep_stale(folder: Path, held: Iterable[str] = ()) -> None:
    """Remove partial files of killed processes in a cache, which processes of several machines may share.

    It removes all partial files of the names in `held`, whose locks this process holds, and any others that were not
    touched for a day. For run folders, which are locked as a whole, use `sweep_partial`.
    """
    prefixes = tuple(f".{name}." for name in held)
    with suppress(OSError):
        for path in folder.glob(".*.partial"):
            touched = max(entry.lstat().st_mtime for entry in (path, *path.rglob("*")))
            if path.name.startswith(prefixes) or time.time() - touched > PARTIAL_SECONDS:
                with suppress(OSError):
                    remove(path)


def _entries(folder: Path) -> dict[str, tuple[int, str]] | None:
    """The size and checksum of each file by name, from the seal; None without a consistent seal."""
    path = folder / SEAL
    if not _is_file(path) or path.stat().st_size > _LARGEST_SEAL:
        return None
    try:
        content = read_object(path)
        if content["checksum"] != _text_checksum(content["files"]):
            return None
        return {name: (size, checksum) for name, (size, checksum) in content["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _signature(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _checksum(path: Path) -> str:
    checksum = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    return checksum.hexdigest()


def _text_checksum(value: object) -> str:
    return xxhash.xxh3_128(json.dumps(value, sort_keys=True).encode()).hexdigest()
