"""Explains a full disk, full memory or a system's refusal in plain words, whichever library reports it."""

import errno
import os

_ROOM = "Free some space, or choose another --out; finished work is kept, and the same command continues."
_PLACE = "Choose a readable and writable folder on a local disk."
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
    errno.ENOTSUP: ("The file system does not support this operation", _PLACE),
    errno.ENAMETOOLONG: ("A name is too long for this file system (255 bytes, as a rule)", "Choose a shorter name."),
    errno.ELOOP: ("Links lead in a circle", "Name the file or folder itself."),
    errno.ENOTDIR: ("Part of the path is a file, not a folder", "Choose another path."),
    errno.EISDIR: ("There is a folder where a file is needed", "Choose another path."),
    errno.EEXIST: ("There is a file where a folder is needed", "Choose another path."),
    errno.ENOTEMPTY: ("A folder that must be replaced is in use", "Choose another --out."),
    errno.ENOENT: ("A file or folder is missing, or was removed while in use", "Run the same command again."),
    errno.ENOMEM: ("The machine's memory is full", _MEMORY),
    errno.EAGAIN: ("The system cannot start another process or thread (ulimit -u)", _LIMIT),
    errno.EMFILE: ("Too many files are open (ulimit -n)", _LIMIT),
    errno.ENFILE: ("Too many files are open on this machine", _LIMIT),
}
_FULL_MEMORY = f"The machine's memory is full.\n{_MEMORY}"
# safetensors, Arrow, torch and Python's threads raise their own types, which carry only the text.
_TEXTS = {
    "No space left on device": f"The disk is full.\n{_ROOM}",
    "Disk quota exceeded": f"The disk quota is used up.\n{_ROOM}",
    "File too large": f"{_ERRNO[errno.EFBIG][0]}.\n{_ROOM}",
    "CUDA out of memory": "The GPU's memory is full.\nUse --device cpu, or lower analysis.tokens_per_batch with --set.",
    "can't allocate memory": _FULL_MEMORY,
    "Cannot allocate memory": _FULL_MEMORY,
    "std::bad_alloc": _FULL_MEMORY,
    "can't start new thread": f"The system cannot start another thread (ulimit -u, or memory).\n{_LIMIT}",
    "Resource temporarily unavailable": f"{_ERRNO[errno.EAGAIN][0]}.\n{_LIMIT}",
    "Too many open files": f"{_ERRNO[errno.EMFILE][0]}.\n{_LIMIT}",
}
_DISK = ("requested and", "unexpected pos", "PytorchStreamWriter failed")
"""How NumPy and torch report that a file accepted too few bytes, without the system's reason."""


def full_disk(error: BaseException) -> int | None:
    """The system's number for a full disk or an exhausted quota, whichever library reports it; None if neither."""
    for code in (errno.ENOSPC, errno.EDQUOT):
        if getattr(error, "errno", None) == code or os.strerror(code) in str(error):
            return code
    return None


def plain_fault(error: BaseException) -> str | None:
    """The user's remedy for `error`, in two lines; None if neither its type nor its text concerns the machine."""
    if isinstance(error, OSError) and error.errno in _ERRNO:
        what, advice = _ERRNO[error.errno]
        where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes | os.PathLike) else ""
        return f"{what}{where}.\n{advice}"
    if isinstance(error, MemoryError):
        return _FULL_MEMORY
    text = str(error)
    if isinstance(error, OSError | RuntimeError) and any(sign in text for sign in _DISK):
        return f"A file could not be written completely: the disk may be full.\n{_ROOM}"
    return next((message for sign, message in _TEXTS.items() if sign in text), None)
