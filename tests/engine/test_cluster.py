"""Workers that join over TLS, leave, die, and come late; clusters of others."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from toy_stages import ENTRY, Toy, counted, written

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


@pytest.fixture
def start(folder) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start a worker for the run folder; it is gone after the test."""
    started: list[subprocess.Popen] = []

    def one(jobs: int = 1, patience: str = "60s") -> subprocess.Popen:
        command = [sys.executable, str(HERE / "worker_script.py"), folder, str(jobs), patience]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield one
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


def listening(folder: str, jobs: int = 0):
    from infoflow.engine import cluster_engine

    return cluster_engine("listen:127.0.0.1", folder, entry=ENTRY, jobs=jobs)


def counts(folder: str, keys: str, updates: int) -> list[Toy]:
    return list(written([Toy(folder=folder, key=key, action="count", argument=updates) for key in keys]))


def state(folder: str, key: str) -> dict:
    return json.loads((Path(folder) / f"{key}.state").read_text())


def wait_for_line(process: subprocess.Popen, beginning: str) -> None:
    for line in process.stderr:
        if line.startswith(beginning):
            return
    raise AssertionError(f"it never says: {beginning}")


def processes_of(event) -> psutil.Process:
    return psutil.Process(event.fields["process"])


def worker_of(event) -> int:
    """The worker that has started a stage: its fork server's parent."""
    return processes_of(event).parent().ppid()


def test_workers_join_and_stay_for_the_next_study(folder, start):
    from open_sockets import sockets

    workers = [start(patience="4s"), start(patience="4s")]
    graph = [*counts(folder, "abcd", 50), *written([Toy(folder=folder, key="z", needs=("a", "d"), action="look")])]
    invitation = Path(folder) / "engine.json"
    before, hosts, listens = sockets(), set(), set()

    def tell(event):
        if event.kind == "start":
            with suppress(psutil.NoSuchProcess):  # the last stage is done before it is heard of
                hosts.add(worker_of(event))
            listens.update({local.ip for local, _, status in sockets() - before if status == "LISTEN"})

    with listening(folder) as engine:
        assert invitation.stat().st_mode & 0o777 == 0o600
        for worker in workers:
            wait_for_line(worker, "Joined the study")
        endings = engine.run(graph, tell)
    assert not invitation.exists()
    assert {ending.state for ending in endings.values()} == {"done"}
    assert {endings[key].facts["value"] for key in "abcd"} == {counted(50)}
    assert hosts == {worker.pid for worker in workers}
    assert listens == {"127.0.0.1"}
    with listening(folder) as engine:
        assert engine.run(counts(folder, "e", 5), lambda event: None)["e"].facts["value"] == counted(5)
    assert [worker.wait(timeout=30) for worker in workers] == [0, 0]


def test_a_worker_leaves_and_another_goes_on_at_the_saved_update(folder, start):
    first = start()
    leaving = threading.Event()

    def tell(event):
        if event.kind == "progress" and event.fields["done"] > 20 and not leaving.is_set():
            leaving.set()
            first.send_signal(signal.SIGTERM)
            start()  # it comes late, and gets what is left

    with listening(folder) as engine:
        endings = engine.run(counts(folder, "ab", 200), tell)
        assert first.wait(timeout=10) == 0
    assert leaving.is_set()
    assert {ending.facts["value"] for ending in endings.values()} == {counted(200)}
    assert sorted(state(folder, key)["starts"] for key in "ab") == [1, 2]
    logs = "".join((Path(folder) / "work" / "logs" / f"{key}.log").read_text() for key in "ab")
    assert logs.count("Stopped after update") == 1


def test_a_killed_worker_loses_nothing(folder, start):
    """The worker and, another time, the process of a stage; what was done before is not done again."""
    workers = [start(), start()]
    killed: list[psutil.Process] = []
    running: dict[str, psutil.Process] = {}

    def tell(event):
        if event.kind == "start":
            running[event.stage] = processes_of(event)
        if event.kind == "progress" and event.stage in "bc" and event.fields["done"] > 20 and len(killed) < 1:
            killed.append(running[event.stage])
            next(worker for worker in workers if worker.pid == killed[0].parent().ppid()).kill()

    graph = [*counts(folder, "a", 5), *counts(folder, "bc", 200)]
    graph[1:] = written([Toy(**{**vars(stage), "needs": ("a",)}) for stage in graph[1:]])
    with listening(folder) as engine:
        endings = engine.run(graph, tell)
    assert len(killed) == 1
    psutil.wait_procs(killed, timeout=5)
    assert not killed[0].is_running()
    assert {endings[key].facts["value"] for key in "bc"} == {counted(200)}
    assert state(folder, "a")["starts"] == 1
    assert sorted(state(folder, key)["starts"] for key in "bc") == [1, 2]


STUDY = """
import sys
sys.path.insert(0, {here!r})
from toy_stages import *
from infoflow.engine import cluster_engine, check_endings
from infoflow.foundation import UserError
folder = {folder!r}
graph = written([Toy(folder=folder, key=key, action="count", argument={updates}) for key in "ab"])
def tell(event):
    if event.kind in ("start", "note", "end"):
        print(event.kind, event.stage, event.fields.get("process", ""), event.text, flush=True)
try:
    with cluster_engine({where!r}, folder, entry=ENTRY) as engine:
        endings = engine.run(graph, tell)
        check_endings(graph, endings)
except UserError as error:
    sys.exit(str(error))
print([endings[key].facts for key in "ab"])
"""


def study(folder: str, where: str, updates: int = 150) -> subprocess.Popen:
    code = STUDY.format(here=str(HERE), folder=folder, where=where, updates=updates)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def running(process: subprocess.Popen, count: int = 2) -> list[psutil.Process]:
    """The processes of the first stages, a moment after they have started."""
    children = []
    while len(children) < count:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        if line.startswith("start"):
            children.append(psutil.Process(int(line.split()[2])))
    time.sleep(0.3)
    return children


def test_a_killed_study_goes_on_with_the_workers_it_had(folder, start):
    worker = start(jobs=2)
    first = study(folder, "listen:127.0.0.1")
    children = running(first)
    first.kill()
    first.communicate()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert all(0 < state(folder, key)["update"] < 150 for key in "ab")
    assert (Path(folder) / "engine.json").exists()  # nobody was there to remove it
    again = study(folder, "listen:127.0.0.1")
    output, errors = again.communicate(timeout=60)
    assert again.returncode == 0, errors
    assert output.count(str(counted(150))) == 2
    assert worker.poll() is None
    assert {state(folder, key)["starts"] for key in "ab"} == {2}


def _refused(folder: str, start, message: str) -> None:
    worker = start(patience="1s")
    _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 2
    assert errors.strip().splitlines()[-1].startswith(message) or message in errors


def test_who_does_not_fit_is_refused(folder, start):
    path = Path(folder) / "engine.json"
    with listening(folder):
        invitation = json.loads(path.read_text())
    invitation["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(invitation))
    path.chmod(0o600)
    _refused(folder, start, "has a different version of torch from the study")
    path.chmod(0o644)
    _refused(folder, start, "must be readable only by you")


def test_nobody_without_the_certificate_gets_in(folder):
    with listening(folder):
        address = json.loads((Path(folder) / "engine.json").read_text())["address"]
        host, _, port = address.removeprefix("tls://").rpartition(":")
        stranger = ssl.create_default_context()
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((host, int(port)), timeout=10) as plain,
            stranger.wrap_socket(plain) as encrypted,
            pytest.raises(ssl.SSLError, match="certificate required"),
        ):
            encrypted.recv(1)
        with socket.create_connection((host, int(port)), timeout=10) as plain:
            plain.sendall(b"x" * 1000)
            with suppress(ConnectionResetError):
                while plain.recv(1000):  # an alert at most, and the end
                    pass


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("tcp://192.0.2.1:8786", "is not encrypted"),
        ("tcp://127.0.0.1:9", "no scheduler answers"),
        ("listen:0.0.0.0", "not all of them"),
        ("listen:203.0.113.7", "cannot listen at"),
        ("listen:here:99999", "listen:HOST:PORT"),
        ("nowhere.json", 'a scheduler file. Got "nowhere.json"'),
    ],
)
def test_a_place_that_cannot_be_is_told(folder, where, message, monkeypatch):
    from infoflow.engine import cluster_engine
    from infoflow.foundation import UserError

    monkeypatch.setattr("infoflow.engine._dask.PATIENCE", 1.5)
    with pytest.raises(UserError, match=message):
        cluster_engine(where, folder, entry=ENTRY).__enter__()
    assert not list((Path(folder) / "work").glob(".engine/*/*"))


@pytest.fixture
def cluster(tmp_path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Programs of a Dask cluster that is not ours; gone after the test."""
    started: list[subprocess.Popen] = []
    environment = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}{HERE}"}

    def one(*arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "dask", *arguments]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen(command, env=environment, cwd=tmp_path, **pipes))
        return started[-1]

    yield one
    for process in reversed(started):
        process.terminate()
        process.wait(timeout=30)


def _outside(cluster, tmp_path: Path, *options: str) -> tuple[subprocess.Popen, str]:
    file = str(tmp_path / "scheduler.json")
    Path(file).unlink(missing_ok=True)
    local = ("--host", "127.0.0.1", "--no-dashboard")
    scheduler = cluster("scheduler", *local, "--port", "0", "--scheduler-file", file)
    cluster("worker", *local, "--scheduler-file", file, "--nthreads", "2", "--death-timeout", "20", *options)
    return scheduler, file


def test_a_cluster_that_runs_already_and_dies(folder, cluster, tmp_path):
    """The study is killed, then the scheduler; what they leave goes on in a new cluster."""
    scheduler, file = _outside(cluster, tmp_path, "--no-nanny")
    while not Path(file).exists():
        time.sleep(0.05)
    killed = study(folder, file, updates=1000)
    children = running(killed)
    killed.kill()
    killed.communicate()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert all(0 < state(folder, key)["update"] < 1000 for key in "ab")
    for key in "ab":
        (Path(folder) / f"{key}.state").unlink()
    first = study(folder, file)
    children = running(first)
    scheduler.kill()
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 1
    assert "Lost the cluster's scheduler" in errors
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    _, file = _outside(cluster, tmp_path, "--no-nanny")
    while not Path(file).exists():
        time.sleep(0.05)
    again = study(folder, file)
    output, errors = again.communicate(timeout=60)
    assert again.returncode == 0, errors
    assert output.count(str(counted(150))) == 2
