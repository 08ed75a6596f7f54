"""Limits the time spent on a hub that does not answer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, ClassVar

_SECONDS_TO_CONNECT, _SECONDS_TO_ANSWER = 10, 30
_TRIES = 2


@contextmanager
def patient_hub() -> Iterator[None]:
    """Stop hub requests in the block after two successive ones without an answer; then only the cache is used.

    The hub's clients try each request six times, for up to 100 seconds each. `HF_HUB_DOWNLOAD_TIMEOUT` may allow
    longer. Threads that are inside at the same time share one client, since a new one would close the others'.
    """
    _Inside.enter()
    try:
        yield
    finally:
        _Inside.leave()


class _Inside:
    """Number of threads inside, and the client factory that they found."""

    _lock: ClassVar[Lock] = Lock()
    _count: ClassVar[int] = 0
    _factory: ClassVar[Any] = None

    @classmethod
    def enter(cls) -> None:
        from huggingface_hub import set_client_factory
        from huggingface_hub.utils import _http

        with cls._lock:
            cls._count += 1
            if cls._count > 1:
                return
            # The factory that a user has set, which no public function returns.
            factory = cls._factory = getattr(_http, "_GLOBAL_CLIENT_FACTORY", _http.default_client_factory)
            requests = _Requests()
            set_client_factory(lambda: requests.watched(factory()))

    @classmethod
    def leave(cls) -> None:
        from huggingface_hub import set_client_factory

        with cls._lock:
            cls._count -= 1
            if cls._count == 0:
                set_client_factory(cls._factory)


class _Requests:
    """Counts successive requests without an answer; thread-safe."""

    def __init__(self) -> None:
        self._unanswered = 0

    def watched(self, client: Any) -> Any:
        """The client with its `send`, which handles all its requests, watched."""
        client.send = self._watched(client.send)
        return client

    def _watched(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def bounded(request: Any, **options: Any) -> Any:
            from huggingface_hub.errors import OfflineModeIsEnabled

            if self._unanswered >= _TRIES:
                raise OfflineModeIsEnabled(f"{request.url.host} does not answer")
            request.extensions["timeout"] = _bounded(request.extensions.get("timeout") or {})
            try:
                answer = send(request, **options)
            except Exception:
                self._unanswered += 1
                raise
            self._unanswered = 0
            return answer

        return bounded


def _bounded(seconds: dict[str, float | None]) -> dict[str, float]:
    from huggingface_hub import constants

    limits = dict.fromkeys(("read", "write", "pool"), _SECONDS_TO_ANSWER) | {"connect": _SECONDS_TO_CONNECT}
    allowed = {name: max(limit, constants.HF_HUB_DOWNLOAD_TIMEOUT) for name, limit in limits.items()}
    return {name: min(seconds.get(name) or limit, limit) for name, limit in allowed.items()}
