"""One compute thread, newest request first."""

import asyncio
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

Answer = TypeVar("Answer")
MOST_WAITING = 4


class Replaced(Exception):
    """A newer request of the same kind came from the same page."""


class Busy(Exception):
    """Too many requests are waiting."""


class ExplorerStopped(Exception):
    """The explorer ends."""


@dataclass(kw_only=True, slots=True, eq=False)
class _Job:
    slot: Hashable
    work: Callable[[], Any]
    patient: bool  # a line of a strip or sweep: interactive requests go first
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class Worker:
    """Runs the work of all requests in a separate thread, one at a time.

    torch never runs in the event loop, and a model never runs twice at once: otherwise hooks of one request would see
    the other. Among waiting jobs the newest runs first; patient ones only if no others wait.
    """

    def __init__(self) -> None:
        self._changed, self._waiting, self._stops = threading.Condition(), list[_Job](), False
        self._thread = threading.Thread(target=self._run, name="infoflow-explorer", daemon=True)
        self._thread.start()

    async def do(self, slot: Hashable, work: Callable[[], Answer], patient: bool = False) -> Answer:
        """The work's result; `slot` identifies page and kind of request.

        Raises:
            Replaced: A newer request with the same slot came before this one ran.
            Busy: Four others wait.
            Stopped: `stop` was called.
        """
        loop = asyncio.get_running_loop()
        job = _Job(slot=slot, work=work, patient=patient, future=loop.create_future(), loop=loop)
        with self._changed:
            if self._stops:
                raise ExplorerStopped
            for other in [one for one in self._waiting if one.slot == slot]:
                self._waiting.remove(other)
                _settle(other, error=Replaced())
            if len(self._waiting) >= MOST_WAITING:
                raise Busy
            self._waiting.append(job)
            self._changed.notify()
        try:
            return await job.future
        finally:
            with self._changed:
                if job in self._waiting:  # the client is gone
                    self._waiting.remove(job)

    def stop(self) -> None:
        """Let the running job finish, and start no other."""
        with self._changed:
            self._stops = True
            for job in self._waiting:
                _settle(job, error=ExplorerStopped())
            self._waiting.clear()
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Wait for the running job."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stops)
                if self._stops:
                    return
                hasty = [job for job in self._waiting if not job.patient]
                job = (hasty or self._waiting)[-1]
                self._waiting.remove(job)
            try:
                result = job.work()
            except BaseException as error:
                _settle(job, error=error)
            else:
                _settle(job, result)


def _settle(job: _Job, result: Any = None, error: BaseException | None = None) -> None:
    def settle() -> None:
        if job.future.done():
            return
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)

    with suppress(RuntimeError):  # the event loop has ended: no client is waiting
        job.loop.call_soon_threadsafe(settle)
