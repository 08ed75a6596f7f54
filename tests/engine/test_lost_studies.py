"""A worker that cannot reach its study, or loses it: it says why, tries again, and the study goes on."""

import json
import os
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy
from toy_stages import ENTRY, Toy, counted, written

from infoflow.engine import _invitation, _joining, _worker, worker
from infoflow.engine._invitation import Invitation, Unreachable, Versions, read_invitation, self_signed
from infoflow.foundation import UserError, make_display, use_display

HERE = Path(__file__).parent


@pytest.fixture
def invitation(folder) -> Invitation:
    certificate, key = self_signed()
    (Path(folder) / "work" / ".engine" / "n").mkdir(parents=True)
    texts = {"address": "tls://127.0.0.1:1", "certificate": certificate, "key": key, "nonce": "n"}
    found = Invitation(folder=folder, versions=Versions.here(), **texts)
    found.write(folder)
    return found


@pytest.fixture(autouse=True)
def _quick(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(_worker, "_REACH", 1.0)
    monkeypatch.setattr(_joining, "_FIRST_PAUSE", 0.05)
    with use_display(make_display("plain")):
        yield


def test_a_certificate_holds_where_the_clock_is_behind():
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(self_signed()[0].encode())
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=23)


def test_a_study_that_cannot_be_reached_has_not_ended(folder, invitation):
    with pytest.raises(UserError, match=r"could not be reached: nothing listens at tls://127.0.0.1:1"):
        worker(folder, jobs=1, patience="1s")
    assert read_invitation(folder) == invitation


def test_a_study_that_ends_without_its_worker_is_no_success(folder, invitation, monkeypatch):
    def gone(invitation: Invitation, jobs: int, devices: object) -> str:
        invitation.remove(folder)
        raise Unreachable("the port is mute")

    monkeypatch.setattr(_worker, "serve", gone)
    with pytest.raises(UserError, match="ended before this worker could reach it: the port is mute"):
        worker(folder, jobs=1, patience="0s")


@pytest.mark.parametrize(
    ("address", "reason"), [("tls://nowhere.invalid:8786", "DNS"), ("tls://127.0.0.1:{mute}", "does not answer")]
)
def test_why_a_study_cannot_be_reached(invitation, address, reason, monkeypatch):
    known = socket.getaddrinfo

    def resolve(host: str, *rest: Any, **named: Any) -> Any:
        if host == "nowhere.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known(host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(Unreachable, match=reason):
        _worker.serve(replace(invitation, address=address.format(mute=mute.getsockname()[1])), 1, ())


def test_a_certificate_from_tomorrow_says_that_the_clock_is_wrong(invitation, tmp_path, monkeypatch):
    monkeypatch.setattr(_invitation, "_EARLIER", timedelta(days=-1))
    certificate, key = self_signed()
    (tmp_path / "both.pem").write_text(key + certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "both.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tls://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=_greet, args=(listener, context))
        thread.start()
        with pytest.raises(Unreachable, match="certificate is not valid yet: correct the clock"):
            _worker.serve(replace(invitation, address=address, certificate=certificate, key=key), 1, ())
        thread.join()


def _greet(listener: socket.socket, context: ssl.SSLContext) -> None:
    plain, _ = listener.accept()
    with plain, suppress(OSError):
        context.wrap_socket(plain, server_side=True).close()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners")
@pytest.mark.parametrize("entry", [".", "run.json", "work"])
@pytest.mark.parametrize("whose", ["another's", "everybody's"])
def test_a_folder_that_others_may_change_is_not_worked_in(folder, invitation, entry, whose):
    """A stage runs what the folder names, and the worker's user runs the stage."""
    (Path(folder) / "run.json").write_text("{}")
    path = Path(folder) / entry
    if whose == "everybody's":
        path.chmod(path.stat().st_mode | 0o002)
    elif os.getuid() == 0:
        os.chown(path, 12345, -1)
    else:
        pytest.skip("only root gives files away")
    with pytest.raises(UserError, match="A worker runs the folder's contents"):
        worker(folder, jobs=1, patience="0s")


@pytest.mark.parametrize("name", ["certificate", "key"])
def test_a_damaged_certificate_is_no_reason_to_try_again(folder, invitation, name):
    replace(invitation, **{name: "nothing of the kind"}).write(folder)
    with pytest.raises(UserError, match="its certificate and key are invalid"):
        worker(folder, jobs=1, patience="60s")


def _damaged(text: str, draw: random.Random) -> bytes:
    """The text cut off, with other bytes, or with an entry replaced or removed."""
    fields = json.loads(text)
    values = ["", None, [], {}, 0, -1, 1e308, "x" * 5000, "../..", "\0", [[[]]], True, "tls://:0", "NaN"]
    kind = draw.randrange(5)
    if kind == 0:
        return text[: draw.randrange(len(text))].encode()
    if kind == 1:
        return bytes(draw.randrange(256) for _ in range(200))
    if kind == 2:
        return draw.choice([b"", b"[]", b"1", b"null", b"NaN", b"[" * 100_000, b'{"a":' * 5000, b"9" * 5000])
    owner = fields["versions"] if draw.random() < 0.4 else fields
    name = draw.choice(sorted(owner))
    if kind == 3:
        del owner[name]
    else:
        owner[name] = draw.choice(values)
    return json.dumps(fields).encode()


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_invitation_ends_in_one_message(folder, invitation, seed, monkeypatch):
    """Damage that only changes a value, as one version to another, may be told as that."""
    monkeypatch.setattr(_joining, "_LATE", 0.1)
    path = Path(folder) / "engine.json"
    path.write_bytes(_damaged(path.read_text(), random.Random(seed)))
    start = time.monotonic()
    with pytest.raises(UserError):
        worker(folder, jobs=1, patience="0s")
    assert time.monotonic() - start < 10


def _through(proxy: Proxy, folder: str) -> subprocess.Popen:
    """A worker whose invitation leads to the proxy."""
    path = Path(folder) / "engine.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "address": f"tls://127.0.0.1:{proxy.port}"}))
    command = [sys.executable, str(HERE / "worker_script.py"), folder, "1", "5s"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("Joined the study"):
            return process
    raise AssertionError("it never joins")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["reset", "mute"])
def test_a_study_goes_on_when_the_network_fails(folder, fault, monkeypatch):
    """After a reset the worker joins again; what a silent worker had goes to the study's own."""
    from infoflow.engine import cluster_engine

    monkeypatch.setitem(_worker._SETTINGS, "distributed.scheduler.worker-ttl", "2s")
    broken: list[float] = []
    graph = list(written([Toy(folder=folder, key=key, action="count", argument=600) for key in "ab"]))
    with cluster_engine("listen:127.0.0.1", folder, entry=ENTRY, jobs=int(fault == "mute")) as engine:
        path = Path(folder) / "engine.json"
        host, _, port = json.loads(path.read_text())["address"].removeprefix("tls://").rpartition(":")
        with Proxy((host, int(port))) as proxy:
            process = _through(proxy, folder)

            def tell(event):
                if event.kind == "progress" and event.fields["done"] > 100 and not broken:
                    broken.append(time.monotonic())
                    proxy.break_off() if fault == "reset" else proxy.fall_silent()

            endings = engine.run(graph, tell)
            path.unlink()
    _, errors = process.communicate(timeout=120)
    assert broken
    assert {ending.facts["value"] for ending in endings.values()} == {counted(600)}
    assert process.returncode == 0
    assert fault == "mute" or "The study cannot be reached: the connection was lost" in errors


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_connections_that_are_reset_at_random_are_not_the_end_of_a_study(folder, seed, capsys):
    """At whatever moment of joining or working the network resets: the invitation stands, the study has not ended."""
    from infoflow.engine import cluster_engine

    draw, begun = random.Random(seed), time.monotonic()

    def reset(proxy: Proxy) -> None:
        while time.monotonic() - begun < 10:
            time.sleep(draw.choice([0.002, 0.01, 0.05, 0.2, 1]) * draw.random())
            proxy.break_off()
        proxy.close()

    with cluster_engine("listen:127.0.0.1", folder, entry=ENTRY, jobs=0):
        path = Path(folder) / "engine.json"
        host, _, port = json.loads(path.read_text())["address"].removeprefix("tls://").rpartition(":")
        with Proxy((host, int(port))) as proxy:
            path.write_text(json.dumps({**json.loads(path.read_text()), "address": f"tls://127.0.0.1:{proxy.port}"}))
            resets = threading.Thread(target=reset, args=(proxy,))
            resets.start()
            with pytest.raises(UserError, match="could not be reached: "):
                worker(folder, jobs=1, patience="3s")
            resets.join()
    assert "has ended" not in capsys.readouterr().err
