"""The cache of downloads, converted corpora and encoded corpora."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from infoflow.foundation import UserError, disagreement, kept, sweep_stale

_FULL = {
    errno.ENOSPC: "The disk is full",
    errno.EDQUOT: "The disk quota is used up",
    errno.EFBIG: "A file would exceed the limit of the file system or of ulimit -f",
}


def cache_folder() -> Path:
    """`$INFOFLOW_CACHE`, else `infoflow` under `$XDG_CACHE_HOME`, else `~/.cache/infoflow`; safe to delete.

    Raises:
        UserError: There is no home folder, and neither variable is set.
    """
    try:
        if own := os.environ.get("INFOFLOW_CACHE"):
            return Path(own).expanduser()
        shared = os.environ.get("XDG_CACHE_HOME")
        # The XDG specification requires relative paths to be ignored.
        base = Path(shared) if shared and Path(shared).is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:  # no such user, or a user without a home
        raise UserError(f"No cache folder was found: {error}.\nSet INFOFLOW_CACHE to a writable folder.") from None
    return base / "infoflow"


def cached(place: str, make: Callable[[Path], object], what: str) -> Path:
    """The folder `place` of the cache, as in `kept`; leftovers of killed processes are removed when something is made.

    Raises:
        UserError: The cache cannot be written, or the disk is full.
    """
    root = cache_folder()
    folder = root / place
    if disagreement(folder) is None:
        return folder
    with room_in_cache(folder.parent, what):
        for each in (root, *_subfolders(root)):
            sweep_stale(each)
        return kept(folder, make, what)


@contextmanager
def room_in_cache(folder: Path, what: str) -> Iterator[None]:
    """Make `folder` of the cache; a full disk inside the block raises an error that names `what`.

    Raises:
        UserError: The folder cannot be written, or the disk is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UserError(
            f"{what} cannot be cached in {folder}: {(error.strerror or str(error)).lower()}.\n"
            "Set INFOFLOW_CACHE to a writable folder."
        ) from None
    try:
        yield
    except OSError as error:
        if (reason := _FULL.get(error.errno or 0)) is None:
            raise
        raise UserError(
            f"{reason}: {what} could not be cached in {folder}.\n"
            "Free some space there, or set INFOFLOW_CACHE to another folder."
        ) from error


def _subfolders(root: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return []
