"""Which exceptions are the user's to fix, and how to say so."""

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infoflow.studies import Run

_ROOM = "Free some space, or choose another --out; what is finished is kept, and the same command continues."
_PLACE = "Choose a place that may be read and written, on a local disk."
_MEMORY = (
    "Close other programs, or lower analysis.tokens_per_batch or training.micro_tokens with --set; in a study also "
    "--processes."
)
_LIMIT = "Raise that limit (ulimit -a shows it), or use fewer --threads and --processes."
_ERRNO = {
    errno.ENOSPC: ("The disk is full", _ROOM),
    errno.EDQUOT: ("The disk quota is used up", _ROOM),
    errno.EFBIG: ("A file became larger than this system allows (ulimit -f)", _ROOM),
    errno.EROFS: ("The file system is read-only", "Choose another --out."),
    errno.EACCES: ("No permission", _PLACE),
    errno.EPERM: ("No permission", _PLACE),
    errno.EIO: ("The disk or the network drive failed to read or write", _PLACE),
    errno.ESTALE: ("The network drive lost a file", _PLACE),
    errno.ENOTSUP: ("The file system cannot do what is needed", _PLACE),
    errno.ENAMETOOLONG: ("A name is too long for this file system (255 bytes, as a rule)", "Choose a shorter name."),
    errno.ELOOP: ("Links lead in a circle", "Name the file or folder itself."),
    errno.ENOTDIR: ("Part of the path is a file, not a folder", "Choose another path."),
    errno.EISDIR: ("A folder lies where a file should be", "Choose another path."),
    errno.EEXIST: ("A file lies where a folder should be", "Choose another path."),
    errno.ENOTEMPTY: ("A folder that should be replaced is in use", "Choose another --out."),
    errno.ENOENT: ("A file or folder is not there, or vanished while it was needed", "Give the same command again."),
    errno.ENOMEM: ("The machine's memory is full", _MEMORY),
    errno.EAGAIN: ("The system starts no further process or thread (ulimit -u)", _LIMIT),
    errno.EMFILE: ("Too many files are open (ulimit -n)", _LIMIT),
    errno.ENFILE: ("Too many files are open on this machine", _LIMIT),
}
_ROOMY = 16e9  # bytes of addresses in which every library finds room
_FULL_MEMORY = f"The machine's memory is full.\n{_MEMORY}"
# safetensors, Arrow, torch and Python's threads raise types of their own that carry only the text.
_TEXTS = {
    "No space left on device": f"The disk is full.\n{_ROOM}",
    "Disk quota exceeded": f"The disk quota is used up.\n{_ROOM}",
    "File too large": f"{_ERRNO[errno.EFBIG][0]}.\n{_ROOM}",
    "CUDA out of memory": "The GPU's memory is full.\nUse --device cpu, or lower analysis.tokens_per_batch with --set.",
    "can't allocate memory": _FULL_MEMORY,
    "Cannot allocate memory": _FULL_MEMORY,
    "std::bad_alloc": _FULL_MEMORY,
    "can't start new thread": f"The system starts no further thread (ulimit -u, or its memory).\n{_LIMIT}",
    "Resource temporarily unavailable": f"{_ERRNO[errno.EAGAIN][0]}.\n{_LIMIT}",
    "Too many open files": f"{_ERRNO[errno.EMFILE][0]}.\n{_LIMIT}",
}


class Incomplete(Exception):
    """Some measures failed; what the others found is written and shown."""


def require_all(runs: "Sequence[Run]") -> None:
    """Say which measures failed, once everything else is shown.

    Raises:
        Incomplete: One did.
    """
    lines = [f"{failure.table} of {failure.model}: {failure.reason}" for run in runs for failure in run.failures]
    if lines:
        traced = [str(run.path / "run.json") for run in runs if any(failure.traceback for failure in run.failures)]
        lines += [f"Tracebacks: {', '.join(traced)} (failures)"] if traced else []
        raise Incomplete(
            "Left out, because these measures failed (the same command tries them again):\n" + "\n".join(lines)
        )


def _address_space() -> int:
    """Bytes that this process may map; −1: all there are."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0]


def _memory_is_limited() -> bool:
    return os.name == "posix" and 0 <= _address_space() < _ROOMY


def explain(error: BaseException) -> str | None:
    """The message for a user who can do something about `error`; None for our own mistakes, which need a traceback."""
    from infoflow.foundation import UserError

    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, MemoryError):
        return _FULL_MEMORY
    if isinstance(error, ImportError | SystemError) and _memory_is_limited():  # a library that found no room to load
        return f"{_FULL_MEMORY}\nThis process may hold {_address_space() / 1e9:.1f} GB of addresses (ulimit -v)."
    if isinstance(error, OSError) and error.errno in _ERRNO:
        what, advice = _ERRNO[error.errno]
        where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes | os.PathLike) else ""
        return f"{what}{where}.\n{advice}"
    text = str(error)
    return next((message for sign, message in _TEXTS.items() if sign in text), None)
