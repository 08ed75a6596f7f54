"""A display that passes on how far work is and what went wrong, and drops what is only worth knowing."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from infoflow.foundation import Display, Progress, current_display, use_display


class _WithoutNotes:
    """What else `display` is told."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def note(self, text: str) -> None:
        pass

    def warn(self, text: str) -> None:
        self._display.warn(text)

    def progress(self, label: str, total: float, unit: str = "") -> AbstractContextManager[Progress]:
        return self._display.progress(label, total, unit)


@contextmanager
def without_notes() -> Iterator[None]:
    """Inside the block, notes are dropped: a study says the same of dozens of models."""
    with use_display(_WithoutNotes(current_display())):
        yield
