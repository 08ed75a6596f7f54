"""A display that passes on progress and problems, and drops mere notes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from infoflow.foundation import Display, Progress, current_display, use_display


class _WithoutNotes:
    """Everything else goes to `display`."""

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
    """Inside the block, notes are dropped: a study would repeat them for dozens of models."""
    with use_display(_WithoutNotes(current_display())):
        yield
