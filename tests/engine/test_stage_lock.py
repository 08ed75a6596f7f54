"""Never two processes at one stage."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from infoflow.engine import _starting as _stage_lock
from infoflow.engine._stage import Relay


@pytest.fixture(params=["flock", "heartbeat"])
def locks(request, monkeypatch):
    """The lock of files, and what takes its place where a file system refuses it."""
    if request.param == "heartbeat":
        monkeypatch.setattr(_stage_lock, "lock_file", lambda descriptor, wait=False: False)
    monkeypatch.setattr(_stage_lock, "_LOOK", 0.02)
    return _stage_lock


def test_the_second_waits_for_the_first_and_says_for_whom(locks, tmp_path):
    from infoflow.foundation import use_display

    inside, most, told = [], [], []

    def work(number):
        with use_display(Relay(told.append)), locks.stage_lock(tmp_path / "locks" / "a") as waited:
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.3)
            inside.remove(number)
            results.append(waited)

    results: list[bool] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    threads[0].start()
    deadline = time.monotonic() + 10
    while not inside and time.monotonic() < deadline:  # it has said who it is
        time.sleep(0.01)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1]
    assert sorted(results) == [False, True, True]
    assert any(f"process {os.getpid()} on " in message["text"] for message in told)
    assert list((tmp_path / "locks").glob("*")) in ([], [tmp_path / "locks" / "a"])


def test_a_lock_is_free_after_an_error(locks, tmp_path):
    with pytest.raises(KeyboardInterrupt), locks.stage_lock(tmp_path / "a"):
        raise KeyboardInterrupt
    with locks.stage_lock(tmp_path / "a") as waited:
        assert not waited


def test_a_silent_holder_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(_stage_lock, "lock_file", lambda descriptor, wait=False: False)
    monkeypatch.setattr(_stage_lock, "_LOOK", 0.02)
    held = tmp_path / "a.held"
    held.write_text(json.dumps({"host": "elsewhere", "process": 1}))
    os.utime(held, (time.time() - 400, time.time() - 400))
    with _stage_lock.stage_lock(tmp_path / "a") as waited:
        assert waited
        assert json.loads(held.read_text())["process"] == os.getpid()
    assert not held.exists()


def test_a_heartbeat_is_renewed(tmp_path, monkeypatch):
    monkeypatch.setattr(_stage_lock, "lock_file", lambda descriptor, wait=False: False)
    monkeypatch.setattr(_stage_lock, "_BEAT", 0.02)
    with _stage_lock.stage_lock(tmp_path / "a"):
        held = Path(tmp_path / "a.held")
        os.utime(held, (0, 0))
        deadline = time.monotonic() + 5
        while held.stat().st_mtime < 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
