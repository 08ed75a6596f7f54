"""Which exceptions are the user's to fix, and how to say so."""

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infoflow.studies import Run

_ERRNO = {
    errno.ENOSPC: "The disk is full",
    errno.EDQUOT: "The disk quota is used up",
    errno.EROFS: "The file system is read-only",
    errno.EACCES: "No permission",
    errno.EPERM: "No permission",
}
_ROOM = "Free some space, or choose another --out; what is finished is kept, and the same command continues."
# safetensors, Arrow and torch raise types of their own that carry only the text.
_TEXTS = {
    "No space left on device": f"The disk is full.\n{_ROOM}",
    "Disk quota exceeded": f"The disk quota is used up.\n{_ROOM}",
    "CUDA out of memory": "The GPU's memory is full.\nUse --device cpu, or lower analysis.tokens_per_batch with --set.",
    "can't allocate memory": "The machine's memory is full.\nLower analysis.tokens_per_batch with --set.",
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


def explain(error: BaseException) -> str | None:
    """The message for a user who can do something about `error`; None for our own mistakes, which need a traceback."""
    from infoflow.foundation import UserError

    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.errno in _ERRNO:
        where = f": {error.filename}" if error.filename else ""
        advice = _ROOM if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Choose another --out."
        return f"{_ERRNO[error.errno]}{where}.\n{advice}"
    text = str(error)
    return next((message for sign, message in _TEXTS.items() if sign in text), None)
