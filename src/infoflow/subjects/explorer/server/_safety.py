"""Access control between the network and the models: host, origin, size and rate of requests, idle connections."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

import h11
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_BODY = 20_000  # bytes
_MOST_REQUESTS, _SECONDS = 30, 10.0
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The content security policy of responses that are not a page."""

_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


class TooLong(Exception):
    """The body exceeds the maximum size."""


class Guard:
    """Accepts only requests of the user's own page.

    | request with | status |
    |---|---|
    | a host that is not ours (DNS rebinding) | 421 |
    | another origin, or a request that another site caused | 403 |
    | neither the token nor its cookie | 401 |
    | a body that is not JSON | 415 |
    | a body of more than 20 kB | 413 |
    | more than 30 questions in 10 seconds | 429 |

    The first visit has the token in its URL; it gets a cookie and is redirected to the URL without it.
    """

    def __init__(
        self, app: ASGIApp, token: str, port: int, hosts: tuple[str, ...] = (), clock: Callable[[], float] | None = None
    ) -> None:
        self._app, self._token, self._cookie = app, token, f"infoflow-{port}"
        names = ("127.0.0.1", "localhost", *hosts)
        self._hosts = {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())
        self._clock, self._recent = clock or time.monotonic, deque[float]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = {name.lower() for name, _ in message["headers"]}
                further = _HEADERS | {"content-security-policy": NOTHING}
                given = [(name.encode(), value.encode()) for name, value in further.items()]
                message["headers"] = [*message["headers"], *(pair for pair in given if pair[0] not in named)]
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is not None:
            await refused(scope, receive, guarded)
            return
        await self._app(scope, _bounded(receive), guarded)

    def _refused(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        host = headers.get("host", "")
        if host not in self._hosts:
            return PlainTextResponse("This is not the explorer's address.", 421)
        if headers.get("origin", f"http://{host}") != f"http://{host}" or headers.get("sec-fetch-site") == "cross-site":
            return PlainTextResponse("Requests from other sites are not allowed.", 403)
        if scope["method"] == "GET" and scope["path"] == "/":
            query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
            if "token" in query:
                return self._entered(query["token"][0])
        if not self._knows(headers.get("cookie", "")):
            return PlainTextResponse("Open the address that infoflow explore printed: it contains a token.", 401)
        if scope["method"] == "POST":
            return self._refused_body(headers)
        return None

    def _refused_body(self, headers: dict[str, str]) -> Response | None:
        if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            return PlainTextResponse("A request must be JSON.", 415)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BODY:
            return too_long()
        now = self._clock()
        while self._recent and self._recent[0] <= now - _SECONDS:
            self._recent.popleft()
        if len(self._recent) >= _MOST_REQUESTS:
            wait = max(1, round(self._recent[0] + _SECONDS - now))
            return PlainTextResponse("Too many requests at once: try again.", 429, {"retry-after": str(wait)})
        self._recent.append(now)
        return None

    def _entered(self, given: str) -> Response:
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return PlainTextResponse(
                "This token belongs to another explorer. Open the address that was printed last.", 401
            )
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
        return answer

    def _knows(self, given: str) -> bool:
        try:
            cookie = SimpleCookie(given).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and secrets.compare_digest(cookie.value.encode(), self._token.encode())


def too_long() -> Response:
    """The response to a body that is too long."""
    return PlainTextResponse(f"A request must have at most {MOST_BODY:,} bytes.", 413)


def _bounded(receive: Receive) -> Receive:
    """Count the bytes of a body without a stated length as it arrives."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MOST_BODY:
            raise TooLong
        return message

    return counted


def new_token() -> str:
    """192 random bits for the URL."""
    return secrets.token_urlsafe(24)


# Limits connections without a request, in number and duration.


MOST_CONNECTIONS = 64
"""Beyond this number, the connection that has been idle longest is closed. A browser opens six connections."""
_PATIENCE = 10.0
"""Maximum seconds from the start of a request to its end. After that, its connection is closed."""


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, with a limit on connections and on the time for headers and body."""

    _timer: asyncio.TimerHandle | None = None
    _since: float = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > MOST_CONNECTIONS:
            others = [one for one in self.connections if isinstance(one, PatientProtocol) and one is not self]
            idle = [one for one in others if one._is_waiting and not one.transport.is_closing()]
            min(idle, key=lambda one: one._since, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_waiting:
            self._await_request()
        else:
            self._cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    @property
    def _is_waiting(self) -> bool:
        """Whether the request is still incomplete."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _await_request(self) -> None:
        if self._timer is None:
            self._since = self.loop.time()
            self._timer = self.loop.call_later(_PATIENCE, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if self._is_waiting and not self.transport.is_closing():
            self.transport.abort()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
