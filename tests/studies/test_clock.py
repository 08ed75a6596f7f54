import os
import signal
import subprocess
import sys
import time

import pytest

from infoflow.results import RunFolder
from infoflow.studies._clock import CLOCK_FILE, reset_clock, wall_clock


def test_time_adds_up_over_calls_failed_ones_too(tmp_path) -> None:
    run = RunFolder(tmp_path)

    def interrupted() -> None:
        with wall_clock(run):
            time.sleep(0.3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with wall_clock(run) as clock:
        assert clock.this_call < 0.3 <= clock.all_calls
    (tmp_path / CLOCK_FILE).write_text("1000.0")
    assert 1000 <= all_calls(run) < 1001


def all_calls(run: RunFolder) -> float:
    with wall_clock(run, save=False) as clock:
        return clock.all_calls


def test_a_run_without_a_clock_goes_on_from_what_it_says(tmp_path) -> None:
    run = RunFolder(tmp_path)
    run.update(seconds=500.0)
    (tmp_path / CLOCK_FILE).write_text("what a full disk left")
    assert 500 <= all_calls(run) < 501
    reset_clock(run)  # another analysis
    assert all_calls(run) < 1


SCRIPT = """
import sys, time
from pathlib import Path
from infoflow.results import RunFolder
from infoflow.studies import _clock

_clock._EVERY = 0.1
with _clock.wall_clock(RunFolder(sys.argv[1])):
    time.sleep(600)
"""


def test_a_killed_call_counts(tmp_path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)])
    deadline = time.monotonic() + 60
    file = tmp_path / CLOCK_FILE
    while not (file.exists() and float(file.read_text()) >= 0.3) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert all_calls(RunFolder(tmp_path)) >= 0.3
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".partial")] == [CLOCK_FILE]
