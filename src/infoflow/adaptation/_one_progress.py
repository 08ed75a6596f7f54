"""The display inside a job of many steps: they show as the one job that goes on, and a note is told once."""

from collections.abc import Iterator
from contextlib import contextmanager

from infoflow.foundation import Display, Progress, current_display, use_display


class _OneProgress:
    """What `display` is told of the steps of a job that it shows as `whole`."""

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
    """A job within the whole, which is shown as often as it would be itself."""

    def __init__(self, whole: Progress) -> None:
        self._whole = whole

    def advance(self, amount: float = 1, **fields: float | str) -> None:
        self._whole.advance(0)


@contextmanager
def one_progress(whole: Progress) -> Iterator[None]:
    """Inside the block, jobs are steps of `whole`: none has lines or a bar of its own, and what several note alike is
    told once."""
    with use_display(_OneProgress(current_display(), whole)):
        yield
