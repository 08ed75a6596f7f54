"""A study that is killed leaves no worker; a worker that the system kills is told as that."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from infoflow.foundation import UserError
from infoflow.studies._jobs import Job
from infoflow.studies._processes import _check, _Worker

PARENT = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "worker.py"], stdin=subprocess.PIPE)
print(worker.pid, flush=True)
time.sleep(600)
"""
WORKER = """
import sys, time
import infoflow.studies._orphan as orphan
if {by_pipe_alone}:
    orphan.sys = type("", (), {{"platform": "another"}})
orphan.end_with_parent()
open("ready", "w").close()
time.sleep(600)
"""


def _is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "Z (zombie)" not in status.read_text()


def _wait_until(holds) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("by_pipe_alone", [False, True])
def test_a_worker_ends_with_its_study(tmp_path: Path, by_pipe_alone: bool) -> None:
    (tmp_path / "worker.py").write_text(WORKER.format(by_pipe_alone=by_pipe_alone))
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    try:
        _wait_until((tmp_path / "ready").exists)
        parent.kill()
        parent.communicate()
        killed = time.monotonic()
        _wait_until(lambda: not _is_running(worker))
        assert time.monotonic() - killed < 2
    finally:
        parent.kill()
        if _is_running(worker):
            os.kill(worker, signal.SIGKILL)


def _ended_by(number: int) -> _Worker:
    process = subprocess.Popen(["bash", "-c", f"ulimit -c 0; kill -{number} $$"], stderr=subprocess.PIPE, text=True)
    process.communicate()
    reader = threading.Thread(target=lambda: None)
    reader.start()
    job = Job(kind="train", objective="masked-lm", seed=0)
    return _Worker(job=job, process=process, reader=reader, output=["last words"])


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (9, "train masked-lm/seed-0 was killed .signal 9.: by the system, which had too little memory.*--processes"),
        (11, "was ended by the system .SIGSEGV.*fewer --processes.*It said:\nlast words"),
        (7, "SIGBUS"),
        (64, "signal 64|SIGRTMAX"),
    ],
)
def test_a_killed_worker_is_told_as_that(number: int, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        _check(_ended_by(number))
    assert re.search(expected, str(caught.value), re.DOTALL)
