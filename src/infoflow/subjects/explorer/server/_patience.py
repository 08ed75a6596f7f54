"""Limits connections without a request, in number and duration."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 64
"""A browser opens six. Beyond this number, the connection that has been idle longest is closed."""
_PATIENCE = 10.0
"""Maximum seconds from the start of a request to its end; then its connection is closed."""


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
