"""Two processes under torchrun: one that stops is noticed within the heartbeat's patience, one that is slow is not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infoflow.flow import _heartbeat as heartbeat

pytestmark = pytest.mark.slow

SCRIPT = """
import os, signal, sys, time
import infoflow.flow._heartbeat as heartbeat
heartbeat._INTERVAL, heartbeat._SILENCE = 0.5, 5.0
from infoflow.flow import processes, wait_for_all
rank, _ = processes()
wait_for_all()
if rank == 1:
    open("pid", "w").write(str(os.getpid()))
    if sys.argv[1] == "slow":
        time.sleep(8)
    else:
        os.kill(os.getpid(), signal.SIGSTOP)
wait_for_all()
print("done", flush=True)
"""


def _run(tmp_path: Path, how: str) -> tuple[int, str, float]:
    (tmp_path / "script.py").write_text(SCRIPT)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen([*launcher, "script.py", how], stdout=log, stderr=log, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 120
        while "did not answer" not in (tmp_path / "log").read_text() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        stopped = tmp_path / "pid"
        if how == "stop":  # the launcher waits half a minute for it to end by itself
            os.kill(int(stopped.read_text()), signal.SIGKILL)
        code = process.wait(timeout=60)
    finally:
        process.kill()
        log.close()
    return code, (tmp_path / "log").read_text(), time.monotonic()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_a_stopped_process_ends_the_run_with_a_message(tmp_path: Path) -> None:
    code, log, _ = _run(tmp_path, "stop")
    assert code != 0
    assert log.count("Process 1 of 2 (counted from 0) did not answer for 5 seconds") == 1
    assert "What is finished is kept" in log
    assert "done" not in log


@pytest.mark.slow
def test_a_slow_process_is_waited_for(tmp_path: Path) -> None:
    code, log, _ = _run(tmp_path, "slow")
    assert code == 0
    assert log.count("done") == 2


class _Store:
    """A launcher's store in this process, with time of its own."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def add(self, key: str, amount: int) -> int:
        self.values[key] = self.values.get(key, 0) + amount
        return self.values[key]


def test_who_left_is_not_missed_and_who_counts_is_heard() -> None:
    store = _Store()
    beats = heartbeat.Heartbeat(store, 0, 3)
    counts: dict[int, int] = {}
    heard: dict[int, float] = {}
    beats._listen(counts, heard, 1.0)
    assert heard == {1: 1.0, 2: 1.0}
    store.add("infoflow/beat/1", 1)
    store.add("infoflow/left/2", 1)
    beats._listen(counts, heard, 2.0)
    beats._listen(counts, heard, 3.0)
    assert heard == {1: 2.0, 2: 3.0}
    assert store.values["infoflow/beat/0"] == 3
    beats._store.add("infoflow/beat/1", 0)
    beats._ending.set()
