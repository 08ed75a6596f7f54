"""Requests to a running explorer that no page of its own sends: each is refused or answered, and the next one is too.

An answer in 400..499 counts as exit code 2, one in 200..399 as 0, all else (a fault inside, no answer) as 1.
"""

import atexit
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cases import Answer, Case, World
from models import VALUES
from surroundings import PIPES, ended

_WAIT = 60.0  # seconds for an answer
_TEXT = "the cat sees the dog"
_GROWTH = 400 << 20  # bytes that thousands of requests may leave in memory
_FIELDS = (
    *("page", "model", "text", "translation", "key", "want", "position", "target", "against", "method"),
    *("hide", "close", "mode", "sweep"),
)


class Server:
    """The explorer of two models, started when it is first asked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process: subprocess.Popen[str] | None = None
        self.host, self.token, self.cookie = "", "", ""

    def start(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        words = ["explore", str(self._world.model), str(self._world.other), "--log=plain", "--longest=32"]
        self.process = subprocess.Popen([sys.executable, "-m", "infoflow", *words], cwd=self._world.path, **PIPES)
        atexit.register(self.process.kill)
        assert self.process.stdout is not None
        address = re.search(r"http://([\d.:]+)/\?token=(\S+)", self.process.stdout.readline())
        assert address is not None
        self.host, self.token = address.groups()
        answer = self.exchange(f"GET /?token={self.token} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
        self.cookie = re.search(r"set-cookie: ([^;]+)", answer, re.IGNORECASE)[1]  # type: ignore[index]

    def connected(self) -> socket.socket:
        host, port = self.host.split(":")
        return socket.create_connection((host, int(port)), timeout=_WAIT)

    def exchange(self, request: bytes, end: bool = False) -> str:
        """What is answered to these bytes; `end`: nothing more is sent."""
        received = b""
        with self.connected() as link, suppress(ConnectionError):
            with suppress(ConnectionError):  # it may answer before it has read everything
                link.sendall(request)
                if end:
                    link.shutdown(socket.SHUT_WR)
            while part := link.recv(65_536):
                received += part
                if _whole(received):
                    break
        return received.decode("latin-1")

    def request(
        self, method: str, path: str, body: bytes = b"", known: bool = True, headers: dict[str, str] | None = None
    ) -> bytes:
        fields = {"Host": self.host, "Connection": "close"} | ({"Cookie": self.cookie} if known else {})
        if method == "POST":
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in (fields | (headers or {})).items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def resident(self) -> int:
        assert self.process is not None
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096

    def is_well(self) -> bool:
        """Whether its page still comes."""
        return _status(self.exchange(self.request("GET", "/"))) == 200


def explorer_cases(world: World) -> Iterator[Case]:
    server = Server(world)

    def case(name: str, make: Callable[[], bytes], codes: tuple[int, ...] = (2,), end: bool = False) -> Case:
        return Case(name, ["explore"], "", codes=codes, answer=partial(_asked, server, make, end))

    for name, (path, body) in _bodies().items():
        yield case(name, lambda path=path, body=body: server.request("POST", path, body), (0, 2))
    for name, (method, path, headers) in _odd_requests().items():
        known = "stranger" not in name
        yield case(
            name,
            lambda m=method, p=path, h=headers, k=known: server.request(
                m, p.replace("TOKEN", server.token), b'{"text": "a"}' if m == "POST" else b"", k, h
            ),
        )
    for name, raw in _RAW.items():
        yield case(name, lambda raw=raw: raw.replace(b"HOST", server.host.encode()), end=True)
    for name, flood in _FLOODS.items():
        yield Case(name, ["explore"], "", codes=(0,), answer=partial(_flooded, server, flood))
    yield Case("is stopped", ["explore"], "", codes=(0,), answer=partial(_stopped, server))


def _bodies() -> dict[str, tuple[str, bytes]]:
    found: dict[str, tuple[str, bytes]] = {}
    for path in ("read", "change", "blank"):
        address = f"/api/{path}"
        for name, value in {**VALUES, "10**400": 10**400, "minus 0.0": -0.0}.items():
            found[f"{path} is {name}"] = (address, json.dumps(value).encode())
            for field in _FIELDS:
                given = {"page": "p", "text": _TEXT, field: value}
                found[f"{path} {field} {name}"] = (address, json.dumps(given).encode())
        for field in _FIELDS:
            deep = f'{{"text": "{_TEXT}", "{field}": {"[" * 2000}{"]" * 2000}}}'
            found[f"{path} {field} 2,000 deep"] = (address, deep.encode())
            found[f"{path} {field} digits"] = (address, f'{{"{field}": {"9" * 5000}}}'.encode())
        for name, text in _TEXTS.items():
            found[f"{path} text: {name}"] = (address, json.dumps({"text": text, "want": ["attention"]}).encode())
        for name, fields in _PLACES.items():
            found[f"{path} {name}"] = (address, json.dumps({"text": _TEXT, **fields}).encode())
        for want in ("attention", "flow", "lens", "relevance", "influence"):
            for position in (0, 31, 2**31 - 1):
                given = {"text": _TEXT, "want": [want], "position": position, "target": position, "against": position}
                found[f"{path} {want} at {position}"] = (address, json.dumps(given).encode())
    for name, body in {
        "nothing": b"",
        "NaN alone": b"NaN",
        "Infinity": b'{"text": "a", "position": -Infinity}',
        "not UTF-8": b'{"text": "\xff\xfe"}',
        "UTF-16": '{"text": "a"}'.encode("utf-16"),
        "UTF-32": '{"text": "a"}'.encode("utf-32"),
        "NUL": b'{"text": "\0"}',
        "twice": b'{"text": "a", "text": 3}',
        "9,000 deep": b"[" * 9000 + b"]" * 9000,
        "objects deep": b'{"text":' * 2000 + b"1" + b"}" * 2000,
        "2,000 fields": json.dumps({f"f{number}": 1 for number in range(1500)}).encode(),
        "huge": b'{"text": "' + b"a" * 5_000_000 + b'"}',
        "just too long": b'{"text": "' + b" " * 20_000 + b'"}',
    }.items():
        found[f"body {name}"] = ("/api/read", body)
    return found


_TEXTS = {
    "empty": "",
    "blank": "   \n\t",
    "control": "the \x00\x1b[31m cat",
    "direction": "the \u202e cat",
    "surrogate": "the \ud800 cat",
    "combining": "a" + "\u0301" * 1000,
    "emoji": "👩‍👩‍👧‍👦" * 100,
    "2,000": "a" * 2000,
    "2,000 words": "a " * 1000,
    "special": "[CLS] [MASK] [PAD] [SEP] </s> <s> [UNK]",
    "masks": "[MASK] " * 30,
    "all masks": "[MASK]",
    "blanks": "_ " * 30,
    "markup": "<script>alert(1)</script>",
    "arabic": "القط يرى الكلب",
}
_PLACES: dict[str, dict[str, Any]] = {
    "hides all": {"hide": [["encoder", number] for number in range(7)]},
    "hides one 4,000 times": {"hide": [["encoder", 1]] * 1000},
    "hides of no stack": {"hide": [["nothing", 0]]},
    "hides of another stack": {"hide": [["decoder", 0]]},
    "hides control": {"hide": [["\x1b[31m", 0]]},
    "hides beyond": {"hide": [["encoder", 2**31 - 1]]},
    "closes no head": {"close": {"heads": [["encoder", "self", 0, 99]]}},
    "closes no layer": {"close": {"heads": [["encoder", "self", 99, 0]]}},
    "closes no kind": {"close": {"heads": [["encoder", "x", 0, 0]]}},
    "closes all": {"close": {"heads": [["encoder", "self", layer, head] for layer in (0, 1) for head in (0, 1)]}},
    "closes layers": {"close": {"layers": [["encoder", 0], ["encoder", 1]]}},
    "closes layers beyond": {"close": {"layers": [["encoder", 2]]}},
    "mean": {"mode": "mean", "close": {"layers": [["encoder", 0]]}},
    "unknown mode": {"mode": "none", "close": {"layers": [["encoder", 0]]}},
    "unknown method": {"method": "none", "want": ["relevance"], "position": 1},
    "sweeps": {"sweep": "heads"},
    "wants all": {"want": ["attention", "flow", "lens", "relevance", "influence"] * 500, "position": 1},
    "an unknown key": {"key": "0" * 32},
    "a key that is a path": {"key": "../../etc/passwd"},
    "the second model": {"model": 1},
    "a third model": {"model": 2},
}


def _odd_requests() -> dict[str, tuple[str, str, dict[str, str]]]:
    read, save = "/api/read", "/api/save"
    found: dict[str, tuple[str, str, dict[str, str]]] = {
        **{f"origin {value}": ("POST", read, {"Origin": value}) for value in ("https://evil.example", "null", "", "x")},
        **{f"host {value[:20]}": ("GET", "/", {"Host": value}) for value in ("evil.example", "", "x" * 5000, "[::1]")},
        **{f"type {value}": ("POST", read, {"Content-Type": value}) for value in ("text/plain", "", ";", "\xff")},
        **{f"method {value}": (value, read, {}) for value in ("PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "get")},
        **{
            f"stranger's token {t[:9]}": ("GET", f"/?token={t}", {})
            for t in ("", "x", "%00", "%ff", "x" * 5000, "TOKENx")
        },
        **{f"path {value[:30]}": ("GET", value, {}) for value in _PATHS},
        **{f"saves {value[:30]}": ("GET", f"{save}?{value}", {}) for value in _SAVES},
        "another site": ("POST", read, {"Sec-Fetch-Site": "cross-site"}),
        "stranger's cookie": ("POST", read, {"Cookie": "\x00=;;=,"}),
        "stranger's long cookie": ("POST", read, {"Cookie": "a=b; " * 2000}),
        "length of many digits": ("POST", read, {"Content-Length": "9" * 5000}),
        "length of 4,000 digits": ("POST", read, {"Content-Length": "0" * 4990 + "9"}),
        "length of minus one": ("POST", read, {"Content-Length": "-1"}),
        "length a word": ("POST", read, {"Content-Length": "many"}),
        "web socket": ("GET", read, {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}),
    }
    return found


_PATHS = (
    *("/nothing", "//", "/..", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/%00", "/%ff", "/api", "/api/read/x"),
    *("http://evil.example/", "*", f"/{'x' * 5000}", f"/api/save/{'../' * 50}"),
)
_SAVES = ("", "key=", "key=a", "key=../x", "key=%00", f"key={'x' * 5000}", "key=a&key=b&key=c", "changed=x", "%ff=%ff")
_HEAD = b"POST /api/read HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n"
_RAW = {
    "garbage": bytes(range(256)) * 4,
    "a line": b"hello\r\n\r\n",
    "another version": b"GET / HTTP/9.9\r\nHost: HOST\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: HOST\r\nHost: evil.example\r\n\r\n",
    "two lengths": _HEAD + b"Content-Length: 3\r\nContent-Length: 30\r\n\r\n{}",
    "length and chunks": _HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "broken chunk": _HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "huge chunk": _HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n",
    "cut": _HEAD + b"Content-Length: 300\r\n\r\n{",
    "header with NUL": b"GET / HTTP/1.1\r\nHost: HOST\r\nX: a\0b\r\n\r\n",
    "10,000 headers": b"GET / HTTP/1.1\r\nHost: HOST\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: HOST\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nHost: HOST\r\n\tx\r\n\r\n",
}


# -- many requests -----------------------------------------------------------------------------------------------------


def _thousands(server: Server) -> None:
    for _ in range(3000):
        server.exchange(server.request("POST", "/api/read", json.dumps({"page": "p", "text": _TEXT}).encode()))


def _thousands_of_texts(server: Server) -> None:
    for number in range(120):  # no more than the limit lets through: each is read, and old ones are forgotten
        body = json.dumps({"page": "p", "text": f"the cat sees {number}", "want": ["attention", "lens"]}).encode()
        while _status(server.exchange(server.request("POST", "/api/read", body))) == 429:
            time.sleep(1)


def _wrong_tokens(server: Server) -> None:
    for number in range(2000):
        server.exchange(server.request("GET", f"/?token={number}", known=False))


def _idle(server: Server) -> None:
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(server.connected()).sendall(b"POST /api/read HTTP/1.1\r\n")
        assert server.is_well()


def _at_once(server: Server) -> None:
    body = json.dumps({"page": "p", "text": _TEXT, "want": ["flow", "influence"]}).encode()
    with ExitStack() as stack:
        links = [stack.enter_context(server.connected()) for _ in range(100)]
        for link in links:
            link.sendall(server.request("POST", "/api/read", body))
        assert server.is_well()
        for link in links:  # half of them are read, the others are left
            if link.fileno() % 2:
                link.recv(10)


_FLOODS: dict[str, Callable[[Server], None]] = {
    "3,000 questions": _thousands,
    "120 texts": _thousands_of_texts,
    "2,000 wrong tokens": _wrong_tokens,
    "300 idle connections": _idle,
    "100 questions at once": _at_once,
}


def _flooded(server: Server, flood: Callable[[Server], None], *_: object) -> Answer:
    server.start()
    server.is_well()
    before = server.resident()
    try:
        flood(server)
        if not server.is_well():
            return 1, "", "The page comes no more."
    except (OSError, AssertionError) as error:
        return 1, "", f"The explorer was not reached: {error!r}"
    grown = server.resident() - before
    return (0, "", "") if grown < _GROWTH else (1, "", f"It holds {grown:,} bytes more than before.")


def _asked(server: Server, make: Callable[[], bytes], end: bool, *_: object) -> Answer:
    server.start()
    for _ in range(15):
        try:
            answer = server.exchange(make(), end)
        except OSError as error:
            return 1, "", f"No answer: {error!r}"
        if (status := _status(answer)) != 429:
            break
        time.sleep(1)
    told = _told(answer.partition("\r\n\r\n")[2])
    if status in (404, 405):  # what the library of the server says of a path or method that it does not know
        told = f"{told}."
    if not server.is_well():
        return 1, "", f"{status}, and then no page: {told[:300]}"
    if 400 <= status < 500 or (not answer and end):
        return 2, "", told[:4000] or "closed."
    return (0 if 200 <= status < 400 else 1), told, "" if status < 400 else f"{status}: {told[:300]}"


def _stopped(server: Server, *_: object) -> Answer:
    server.start()
    assert server.process is not None
    with server.process as process:
        process.send_signal(signal.SIGINT)
        return ended(process)


def _told(body: str) -> str:
    """The message of an answer."""
    if body.startswith('{"error":'):
        return json.loads(body)["error"]
    return body.replace("\r", "")  # of an answer in chunks


def _status(answer: str) -> int:
    found = re.match(r"HTTP/1.1 (\d{3})", answer)
    return int(found[1]) if found else 0


def _whole(received: bytes) -> bool:
    """Whether an answer with a length has come; others end with the connection."""
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return bool(length) and len(body) >= int(length[1])  # type: ignore[index]
