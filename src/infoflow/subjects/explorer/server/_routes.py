"""The explorer's URLs, and the one compute thread behind them, which serves the newest request first."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from infoflow.foundation import UserError, showable
from infoflow.report import Explored, view_page

from ._answers import Responses, differences
from ._effects import effect
from ._readings import Forgotten, SentenceReading, lens
from ._request import BadRequest, Change, HttpRequest, parsed
from ._safety import TooLong, too_long

Answer = TypeVar("Answer")
MOST_WAITING = 4


class Replaced(Exception):
    """Raised when a newer request of the same kind has come from the same page."""


class Busy(Exception):
    """Raised when too many requests are waiting."""


class ExplorerStopped(Exception):
    """Raised when the explorer ends."""


@dataclass(kw_only=True, slots=True, eq=False)
class _Job:
    slot: Hashable
    work: Callable[[], Any]
    patient: bool  # whether this is a line of a strip or sweep, which lets interactive requests go first
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class Worker:
    """Runs the work of all requests in a separate thread, one at a time.

    torch never runs in the event loop, and a model never runs twice at once, since the hooks of one request would then
    see the other request. The newest waiting job runs first; patient jobs run only if no others wait.
    """

    def __init__(self) -> None:
        self._changed, self._waiting, self._stops = threading.Condition(), list[_Job](), False
        self._thread = threading.Thread(target=self._run, name="infoflow-explorer", daemon=True)
        self._thread.start()

    async def do(self, slot: Hashable, work: Callable[[], Answer], patient: bool = False) -> Answer:
        """Run `work` and return its result; `slot` identifies the page and the kind of request.

        Raises:
            Replaced: A newer request with the same slot came before this one ran.
            Busy: Four other requests are waiting.
            ExplorerStopped: `stop` was called.
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


# The explorer's URLs.


_END = object()


class Routes:
    """Passes requests to the worker, and its results back as responses."""

    def __init__(self, answers: Responses, worker: Worker, page: tuple[str, str]) -> None:
        self._answers, self._worker = answers, worker
        self._page, self._policy = page
        self._streams = count()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self.page, methods=["GET"]),
                Route("/api/read", partial(self.ask, "read"), methods=["POST"]),
                Route("/api/change", partial(self.ask, "change"), methods=["POST"]),
                Route("/api/blank", partial(self.ask, "blank"), methods=["POST"]),
                Route("/api/save", self.save, methods=["GET"]),
            ]
        )

    async def page(self, request: Request) -> Response:
        return Response(self._page, media_type="text/html", headers={"content-security-policy": self._policy})

    async def ask(self, kind: str, request: Request) -> Response:
        try:
            question = parsed(json.loads(await request.body()))
        except TooLong:
            return too_long()
        except (ValueError, RecursionError):
            return _error(400, "A request must be JSON.")
        except BadRequest as error:
            return _error(400, str(error))
        except ClientDisconnect:
            return Response(status_code=400)
        if question.sweep or "influence" in question.want:
            return await self._lines(question)
        slot = (question.page, kind, question.model, question.want)
        return await self._answered(slot, partial(self._work, kind, question))

    def _work(self, kind: str, question: HttpRequest) -> Response:
        if kind == "blank":
            return JSONResponse(self._answers.blank(question))
        answer = self._answers.read(question) if kind == "read" else self._answers.change(question)
        return Response(answer, media_type="application/octet-stream")

    async def save(self, request: Request) -> Response:
        keys = request.query_params.getlist("key")[:2]
        state = request.query_params.get("state", "")[:4000]
        suffix = "1" if request.query_params.get("suffix") == "1" else ""
        work = partial(self._file, keys[0] if keys else "", request.query_params.get("changed", ""), state, suffix)
        return await self._answered(("save", next(self._streams)), work)

    def _file(self, key: str, changed: str, state: str, suffix: str) -> Response:
        name, page = saved_page(self._answers, key[:80], changed[:80], state, suffix)
        return Response(page, media_type="text/html", headers={"content-disposition": f'attachment; filename="{name}"'})

    async def _answered(self, slot: tuple[Any, ...], work: Callable[[], Response]) -> Response:
        try:
            return await self._worker.do(slot, work)
        except Exception as error:
            return _failed(error)

    async def _lines(self, question: HttpRequest) -> Response:
        """JSON lines, each sent when ready.

        Other requests are served in between, and a closed connection ends the work.
        """
        slot = (question.page, "lines", question.sweep)
        parts = self._answers.lines(question)

        def following() -> Any:
            return next(parts, _END)

        try:
            first = await self._worker.do(slot, following)
        except Exception as error:
            return _failed(error)
        return StreamingResponse(self._each(slot, first, following), media_type="application/x-ndjson")

    async def _each(self, slot: tuple[Any, ...], part: Any, following: Callable[[], Any]) -> AsyncIterator[bytes]:
        while part is not _END:
            for row in part:
                yield json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n"
            try:
                part = await self._worker.do(slot, following, patient=True)
            except Exception as error:
                message = bytes(_failed(error).body).decode()
                yield message.encode() + b"\n"
                return


def _failed(error: Exception) -> Response:
    if isinstance(error, UserError):
        return _error(422, showable(str(error)))
    if isinstance(error, Replaced):
        return _error(409, "A newer request replaced this one.")
    if isinstance(error, Busy):
        return _error(429, "The models are busy: try again.")
    if isinstance(error, Forgotten):
        return _error(404, "This sentence is no longer cached. It is read again.")
    if isinstance(error, ExplorerStopped):
        return _error(503, "The explorer is shutting down.")
    # Never a traceback, which would contain the text; its type is enough for a report.
    return _error(500, f"This failed ({type(error).__name__}). Choose something else, or start the explorer again.")


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)


def saved_page(answers: Responses, key: str, changed: str, state: str, suffix: str) -> tuple[str, str]:
    """Name and text of the file for a reading, and optionally for the reading after its change.

    Raises:
        Forgotten: A key is unknown.
    """
    before = answers.readings.of_key(key)
    reading = answers.readings.of_key(changed) if changed else before
    is_changed = reading is not before
    kept: dict[str, Any] = {name: list(rows) for name, rows in answers.kept(reading.key).items()}
    if reading.has_head:
        answers_lens = answers.attempted(lambda: lens(reading, None))
        kept |= {} if "reason" in answers_lens else {"lens": [answers_lens]}
    page = view_page(
        reading.seen,
        Explored(
            state=_own(state, suffix) or "#",
            before=before.seen if is_changed else None,
            change_text=in_words(reading) if is_changed else "",
            arrays=differences(before.seen, reading.seen) if is_changed else {},
            answers=kept,
            effect=effect(before, reading) if is_changed else None,
        ),
    )
    answers.readings.trim()
    return f"explore-{_plain(reading.subject.model.name)}.html", page


def in_words(reading: SentenceReading) -> str:
    """The change of a reading, in words."""
    change: Change = reading.change
    tokens = reading.sentence.tokens
    parts = [f"“{tokens[stack][index].text}” hidden" for stack, index in change.hide]
    gives = "zeros" if change.mode == "zero" else "its mean"
    parts += [f"{stack} {kind} head {layer}.{head} gives {gives}" for stack, kind, layer, head in change.heads]
    parts += [f"{stack} layer {layer} skipped" for stack, layer in change.layers]
    return f"Ablated: {', '.join(parts)}."


def _own(state: str, suffix: str) -> str:
    """The settings of one of two models, renamed for a page with a single model."""
    if not suffix:
        return state
    pairs = [pair.split("=", 1) for pair in state.lstrip("#").split(";") if "=" in pair]
    mine = [
        f"{name.removesuffix(suffix)}={value}"
        for name, value in pairs
        if name.endswith(suffix) or name in ("show", "other")
    ]
    return "#;" + ";".join(mine)


def _plain(name: str) -> str:
    kept = (char if char.isascii() and (char.isalnum() or char in "-_.") else "-" for char in name)
    return "".join(kept).strip("-.") or "model"
