"""Two processes under torchrun: one that stops is noticed within the heartbeat's patience, one that is slow is not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import os, signal, sys, time
import infoflow.flow._distributed as heartbeat
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
