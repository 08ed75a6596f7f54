"""Files and folders that are written atomically, and JSON files whose faults are described in plain words."""

import errno
import glob
import json
import os
import platform
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from . import _machine
from ._errors import UserError, full_disk

_PARTIAL = ".partial"
_MACHINE = f"{zlib.crc32(platform.node().encode()):08x}"
_LONGEST_NAME = 255  # bytes, on every common file system


@contextmanager
def atomic_write(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path next to `path`; on success it is flushed to disk and renamed to `path`.

    After an error or a kill, an existing `path` is untouched. The file's mode follows the umask.

    Raises:
        UserError: The folder of `path` is not writable, or `path` is a folder.
    """
    path = Path(path)
    if os.path.isdir(path):  # noqa: PTH112 (no error for names that are too long)
        raise UserError(f"{path} is a folder, but a file must be written there. Move it, and run the command again.")
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _partial_of(path)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    mode = stat.S_IMODE(temporary.stat().st_mode)
    try:
        with disk_named(path):
            yield temporary
            temporary.chmod(mode)  # libraries that replace the file make it private
            _flush(temporary)
        _machine.replace(temporary, path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path | str, keep_existing: bool = False) -> Iterator[Path]:
    """Yield a temporary folder next to `path`; on success it replaces `path` as a whole.

    A kill between removing an old folder and the rename leaves no folder, but never a mixture of two. With
    `keep_existing`, a folder that another process has created meanwhile stays; use it for folders named after their
    content, so that the first writer wins and open files never vanish. All modes inside follow the umask.
    """
    path = Path(path)
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _partial_of(path)
        temporary.mkdir()
    mode = stat.S_IMODE(temporary.stat().st_mode)
    try:
        with disk_named(path):
            yield temporary
            for entry in temporary.rglob("*"):
                if not entry.is_symlink():
                    entry.chmod(mode if entry.is_dir() else mode & 0o666)
                _flush(entry)
            _flush(temporary)
        if path.exists() and not keep_existing:
            _remove_old(path)
        try:
            _machine.replace(temporary, path)
        except (OSError, UserError):
            if not (keep_existing and path.is_dir()):
                raise
        _flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def reserve_space(path: Path) -> None:
    """Reserve disk space for a memory-mapped file, because a full disk at a later write would kill the process."""
    if not hasattr(os, "posix_fallocate") or not (size := path.stat().st_size):  # macOS, Windows
        return
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from None  # others are harmless
    finally:
        os.close(descriptor)


def sweep_partial(folder: Path) -> None:
    """Remove partial files of killed processes under `folder`; those of living processes stay.

    Use it only for a locked folder, since it cannot tell whether a process on another machine is alive.
    """
    _remove_dead(folder.rglob(f".*{_PARTIAL}"))


def _remove_dead(partial: Iterable[Path]) -> None:
    """Remove the partial files whose process no longer runs on this machine."""
    for path in list(partial):
        writer = path.name.removesuffix(_PARTIAL).rpartition(".")[2].partition("-")[0]
        if writer.isdecimal() and (int(writer) == os.getpid() or _machine.is_alive(int(writer))):
            continue
        with suppress(OSError):
            remove(path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _partial_of(path: Path) -> Path:
    """A hidden path that names this process, in the folder of `path` so that a rename is atomic.

    Partial files for `path` that killed processes of this machine have left are removed.
    """
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    ending = f".{os.getpid()}-{_MACHINE}-{secrets.token_hex(4)}{_PARTIAL}"
    start = os.fsencode(path.name)[: _LONGEST_NAME - len(ending) - 1].decode(errors="ignore")
    _remove_dead(path.parent.glob(f".{glob.escape(start)}.*-{_MACHINE}-*{_PARTIAL}"))
    return path.with_name(f".{start}{ending}")


def _remove_old(path: Path) -> None:
    """Remove a folder; on Windows completely or not at all, since a folder with an open file cannot be renamed."""
    if _machine.WINDOWS:
        aside = _partial_of(path)
        _machine.replace(path, aside, named=path)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        shutil.rmtree(path)


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `UserError`: `path` cannot be written."""
    try:
        yield
    except OSError as error:
        if full_disk(error):
            raise OSError(error.errno, os.strerror(error.errno), _disk_of(path)) from error
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{path} cannot be written: {reason}. Choose another path.") from None


@contextmanager
def disk_named(path: Path) -> Iterator[None]:
    """Make errors of a full disk, which libraries report without a path, name the disk of `path`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        named = getattr(error, "filename", None)
        elsewhere = named is not None and not Path(os.fsdecode(named)).is_relative_to(path.parent)
        if (code := full_disk(error)) is None or elsewhere:
            raise
        raise OSError(code, os.strerror(code), _disk_of(path)) from error


def _disk_of(path: Path) -> str:
    return str(next(folder for folder in (path.absolute(), *path.absolute().parents) if os.path.ismount(folder)))


def check_writable(folder: Path, option: str = "--out") -> None:
    """Check, before any work, that the output folder given by `option` can be written; it need not exist."""
    folder = folder.absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        raise UserError(f"{option} must be a folder. {existing} is a file.")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        if full_disk(error):
            raise OSError(error.errno, os.strerror(error.errno), _disk_of(folder)) from error
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{option} {folder} cannot be written: {reason} in {existing}. Choose another.") from None


def check_own_folder(folder: Path, mark: str, what: str) -> None:
    """Allow `what` to replace only a new or empty folder, or one of infoflow's, which contains the file `mark`."""
    check_writable(folder)
    if not folder.is_dir() or (folder / mark).is_file():
        return
    if held := [path.name for path in folder.iterdir() if not path.name.endswith(_PARTIAL)]:
        raise UserError(
            f"{what} needs its own folder. {folder} contains other files ({min(held)}, ...): choose another --out."
        )


def _flush(path: Path) -> None:
    if _machine.WINDOWS:  # Windows cannot open folders or flush files that are open for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_LARGEST = 100_000_000  # maximum bytes; the run.json of a study with thousands of models has a tenth of that


def json_fault(error: ValueError | RecursionError) -> str:
    """The problem found while reading JSON, without Python's wording about codecs and internal limits."""
    if isinstance(error, RecursionError):
        return "lists or objects are nested too deeply"
    if isinstance(error, UnicodeEncodeError):
        return "a text contains half of a surrogate pair"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text at byte {error.start:,}"
    return "a number has more than 4,300 digits" if "int_max_str_digits" in str(error) else str(error)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file that infoflow wrote and that may have been damaged since.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file holds something else; the message describes it without the file's name.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be read forever
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST:,} bytes")
    try:
        found = json.loads(content.decode())
        if rb"\ud" in content.lower():  # only an escape can produce half a character, which no file or terminal accepts
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(json_fault(error)) from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def is_unicode(text: str) -> bool:
    """Whether the text has no unpaired surrogates, which JSON escapes and undecodable file names can introduce."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
