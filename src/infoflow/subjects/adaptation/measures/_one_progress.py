"""Shows a job of many steps as one progress; repeated notes appear once."""

from collections.abc import Iterator
from contextlib import contextmanager

from infoflow.foundation import Display, Progress, current_display, use_display


class _OneProgress:
    """The display for the steps of a job that is shown as `whole`."""

    def __init__(self, display: Display, whole: Progress) -> None:
        self._display, self._whole = display, whole
        self._noted: set[str] = set()

    def note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._display.note(text)

    def warn(self, text: str) -> None:
        self._display.warn(text)

    @contextmanager
    def progress(self, label: str, total: float, unit: str = "") -> Iterator[Progress]:
        yield _Step(self._whole)


class _Step:
    """A job within the whole, updated as often as it would be alone."""

    def __init__(self, whole: Progress) -> None:
        self._whole = whole

    def advance(self, amount: float = 1, **fields: float | str) -> None:
        self._whole.advance(0)


@contextmanager
def one_progress(whole: Progress) -> Iterator[None]:
    """Inside the block, jobs are steps of `whole`: none has its own lines or bar, and repeated notes appear once."""
    with use_display(_OneProgress(current_display(), whole)):
        yield
