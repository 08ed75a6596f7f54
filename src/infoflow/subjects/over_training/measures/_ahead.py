"""Fetches the next checkpoint while one is measured."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ._places import AbstractOpened, AbstractPlace


class Ahead:
    """Provides the folders of places in order; the next one to be fetched is fetched in the background.

    At most two exist at a time: leave `opened` before requesting the next. Close it at the end.

    Args:
        keep: Whether fetched files stay.
    """

    def __init__(self, keep: bool = False) -> None:
        self._waiting, self._keep = list[AbstractPlace](), keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fetch")
        self._next: tuple[AbstractPlace, AbstractOpened, Future[Path]] | None = None

    def expect(self, places: Sequence[AbstractPlace]) -> None:
        """Announces the places that will be opened, in this order."""
        self._waiting = list(places)

    @contextmanager
    def opened(self, place: AbstractPlace) -> Iterator[Path]:
        """The place's folder; meanwhile the next one is fetched.

        Raises:
            UserError: It could not be fetched.
        """
        opened, folder = self._taken(place)
        try:
            self._begin_next()
            yield folder
        finally:
            opened.__exit__()

    def close(self) -> None:
        """Removes fetched files that were never used."""
        if self._next:
            _, opened, folder = self._next
            self._next = None
            if folder.exception() is None:
                opened.__exit__()
        self._thread.shutdown()

    def _taken(self, place: AbstractPlace) -> tuple[AbstractOpened, Path]:
        if place in self._waiting:
            del self._waiting[: self._waiting.index(place) + 1]
        if self._next and self._next[0] == place:
            _, opened, folder = self._next
            self._next = None
            return opened, folder.result()
        opened = place.opened(self._keep)
        return opened, opened.__enter__()

    def _begin_next(self) -> None:
        if self._next is None and self._waiting and not self._waiting[0].is_here:
            place = self._waiting[0]
            opened = place.opened(self._keep)
            self._next = place, opened, self._thread.submit(opened.__enter__)
