"""Connections that bring no request do not keep people out."""

import resource
import select
import socket
import time
from contextlib import ExitStack

import pytest

pytest.importorskip("uvicorn")


@pytest.fixture
def explorer(models, explorers):
    return explorers(models["masked"]).start()


def _connected(explorer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", explorer.port), timeout=10)


def _entered(explorer) -> bytes:
    """The first line that a person's browser gets."""
    path = explorer.address.partition(str(explorer.port))[2]
    with _connected(explorer) as browser:
        browser.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{explorer.port}\r\n\r\n".encode())
        return browser.recv(1000).partition(b"\r\n")[0]


def test_idle_connections_keep_nobody_out(explorer):
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as open_sockets:
        idle = [open_sockets.enter_context(_connected(explorer)) for _ in range(min(500, soft // 2 - 100))]
        start = time.monotonic()
        assert _entered(explorer) == b"HTTP/1.1 303 See Other"
        assert time.monotonic() - start < 2
        assert len(explorer._server.server_state.connections) < len(idle)


@pytest.mark.parametrize(
    "begun", [b"", b"GET / HTTP/1.1\r\nHost: a", b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"]
)
def test_a_request_that_never_ends_is_cut_off(explorer, begun, monkeypatch):
    monkeypatch.setattr("infoflow.subjects.explorer.server._safety._PATIENCE", 0.3)
    with _connected(explorer) as slow:
        end = time.monotonic() + 5
        while time.monotonic() < end and _is_open(slow, begun):
            begun = b"x" if begun else b""  # a byte now and then keeps it no longer
            time.sleep(0.1)
    assert time.monotonic() < end


def _is_open(one: socket.socket, more: bytes) -> bool:
    try:
        one.sendall(more)
        return not select.select([one], [], [], 0)[0] or bool(one.recv(1000))
    except OSError:
        return False
