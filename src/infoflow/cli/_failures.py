"""Which exceptions are the user's to fix, and how to say so."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infoflow.studies import Run

_ROOMY = 16e9  # bytes of addresses in which every library finds room


class Incomplete(Exception):
    """Some measures failed; the results of the others are written and shown."""


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
            "These measures failed and are left out (run the same command to retry them):\n" + "\n".join(lines)
        )


def _address_space() -> int:
    """Bytes that this process may map; −1: all there are."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0]


def _memory_is_limited() -> bool:
    return os.name == "posix" and 0 <= _address_space() < _ROOMY


def explain(error: BaseException) -> str | None:
    """The message for a user who can do something about `error`; None for our own mistakes, which need a traceback."""
    from infoflow.foundation import UserError, plain_fault

    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ImportError | SystemError) and _memory_is_limited():  # a library that found no room to load
        memory = plain_fault(MemoryError())
        return f"{memory}\nThe address space of this process is limited to {_address_space() / 1e9:.1f} GB (ulimit -v)."
    return plain_fault(error)
