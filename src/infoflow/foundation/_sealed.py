"""Reproducible folders, sealed with the size and checksum of each file and made again if a file disagrees."""

import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import xxhash

from ._display import current_display
from ._files import atomic_folder, remove
from ._json import read_object
from ._locks import locked

SEAL = "seal.json"
"""In a sealed folder: size and checksum of each of its files."""
PARTIAL_SECONDS = 24 * 3600
"""Age at which a partial file of a possibly living process counts as one of a killed process."""

_CHUNK = 1 << 20
_LARGEST_SEAL = 1 << 20  # bytes; a folder holds a few files

_agreed: dict[Path, Any] = {}  # folders checked by this process, with the system's status of their files


def kept(folder: Path, make: Callable[[Path], object], what: str) -> Path:
    """Return `folder`, filled by `make` unless it exists and agrees with its seal; the only function that opens caches.

    `make` gets an empty folder, which is sealed and renamed when it is complete. One process makes it while others
    wait. A damaged folder is made again, with a note that names `what`. Each process reads a folder's files once to
    check them (0.1 ms for a megabyte in the page cache).

    Raises:
        UserError: The folder must be made and is not writable.
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
    """`atomic_folder` with a seal; `disagreement` checks it later.

    Raises:
        UserError: The folder of `path` is not writable.
    """
    with atomic_folder(path) as folder:
        yield folder
        seal(folder)


def seal(folder: Path) -> None:
    """Record the size and checksum of every file in `folder`."""
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

    These are all files of the names in `held`, whose locks this process holds, and others that are untouched for a day.
    Run folders, which are locked as a whole, use `sweep_partial`.
    """
    prefixes = tuple(f".{name}." for name in held)
    with suppress(OSError):
        for path in folder.glob(".*.partial"):
            if path.name.startswith(prefixes) or time.time() - _last_touched(path) > PARTIAL_SECONDS:
                with suppress(OSError):
                    remove(path)


def _last_touched(path: Path) -> float:
    return max(entry.lstat().st_mtime for entry in (path, *path.rglob("*")))


def _entries(folder: Path) -> dict[str, tuple[int, str]] | None:
    """Name → (size, checksum) from the seal; None without a consistent seal."""
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
