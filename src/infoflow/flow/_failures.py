"""Isolates failures: a measure that fails on a model loses only its own table."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from infoflow.foundation import UserError, current_display, told_error, told_in_file

from ._measure import AbstractMeasure, Origin

# Types differ between libraries (Arrow, safetensors, torch): some carry only the text.
_OF_THE_MACHINE = (
    "out of memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "can't start new thread",
    "No space left on device",
    "Disk quota exceeded",
)


@runtime_checkable
class Named(Protocol):
    """The producer of a table: a measure, or another object with the table's name."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a table is missing."""

    table: str
    model: str
    reason: str  # for the user; for an unexpected exception its type and message
    traceback: str = ""  # for an unexpected exception: a fault of infoflow or of the user's own code


class Failures:
    """Failures of measures on one model, by table.

    Args:
        model: The model's name.
        keep_going: Whether a failure is reported and the other measures continue; otherwise it is raised.
    """

    def __init__(self, model: str, keep_going: bool) -> None:
        self.keep_going = keep_going
        self._model = model
        self._found: dict[str, Failure] = {}

    def __contains__(self, measure: Named) -> bool:
        """Also true if another measure of its table failed, since the table would be incomplete."""
        return measure.name in self._found

    @contextmanager
    def of(self, measure: Named) -> Iterator[None]:
        """Report and record errors of `measure`, except interruptions and a lack of memory or disk space."""
        origin = measure.origin if isinstance(measure, AbstractMeasure) else None
        try:
            yield
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or _is_of_the_machine(error, origin):
                raise
            # The user's own code may also exit, which must not happen silently.
            if not isinstance(error, Exception) and origin is None:
                raise
            failure = _failure(self._model, measure, error, origin)
            if not self.keep_going:
                if origin is None or isinstance(error, UserError):
                    raise
                raise UserError(f"{measure.name} of {self._model} failed: {failure.reason}") from error
            self._found[measure.name] = failure
            current_display().warn(f"{measure.name} of {self._model} failed and is left out: {failure.reason}")

    def add(self, others: Sequence["Failures"]) -> None:
        """Add failures from other processes."""
        for other in others:
            self._found |= other._found

    def listed(self) -> tuple[Failure, ...]:
        """All failures, by table."""
        return tuple(self._found[table] for table in sorted(self._found))


def _failure(model: str, measure: Named, error: BaseException, origin: Origin | None) -> Failure:
    if isinstance(error, UserError):
        return Failure(table=measure.name, model=model, reason=str(error))
    if origin:
        where = f"{origin.file.name}, " if origin.file else ""
        told = told_in_file(error, origin.file) if origin.file else told_error(error)
        reason = f"its own code raised an error: {where}{told}. Mend it."
        return Failure(table=measure.name, model=model, reason=reason, traceback=_traced(error))
    reason = f"this is a fault of infoflow, not of the model or the corpus. {type(error).__name__}: {error}"
    return Failure(table=measure.name, model=model, reason=reason, traceback=_traced(error))


def _traced(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _is_of_the_machine(error: BaseException, origin: Origin | None) -> bool:
    """Whether the machine is at fault, so that other measures would fail too: memory, disk or permission.

    A user's own code may also look for a missing file, which does not count.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or (isinstance(error, OSError) and origin is None):
        return True
    return any(sign in str(error) for sign in _OF_THE_MACHINE)
