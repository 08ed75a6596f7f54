"""Stages one after another in this process."""

import os
import threading
from pathlib import Path

import pytest
from toy_stages import Toy, counted


def _run(graph, on_event=lambda event: None):
    from infoflow.engine import InTurn

    with InTurn() as engine:
        return engine.run(graph, on_event)


def test_stages_run_in_order_and_tell_what_they_did(folder):
    events = []
    graph = [
        Toy(folder=folder, key="b", needs=("a", "elsewhere"), action="nothing"),
        Toy(folder=folder, key="a", action="count", argument=3),
    ]
    (Path(folder) / "elsewhere.result").touch()
    endings = _run(graph, events.append)
    assert {key: ending.state for key, ending in endings.items()} == {"a": "done", "b": "done"}
    assert endings["a"].facts == {"value": counted(3), "updates": 3}
    usage = endings["a"].usage
    assert usage.seconds >= 0.03
    assert (usage.threads, usage.device) == (1, "cpu")
    told = [(event.kind, event.stage) for event in events]
    assert told == [
        ("start", "a"), ("progress", "a"), ("end", "a"), ("start", "b"), ("end", "b")
    ]  # fmt: skip
    assert events[1].fields["label"] == "count"


def test_a_failure_keeps_what_needs_it_from_running_and_nothing_else(folder):
    from infoflow.engine import check_endings
    from infoflow.foundation import UserError

    graph = [
        Toy(folder=folder, key="bad", action="user error", argument="--x must be 1"),
        Toy(folder=folder, key="after", needs=("bad",)),
        Toy(folder=folder, key="later", needs=("after",)),
        Toy(folder=folder, key="good"),
    ]
    endings = _run(graph)
    assert [endings[stage.key].state for stage in graph] == ["failed", "skipped", "skipped", "done"]
    assert endings["later"].because == "bad"
    with pytest.raises(UserError, match=r"(?s)user error bad: --x must be 1.*1 stage succeeded.*2 stages were not"):
        check_endings(graph, endings)


def test_three_failures_for_one_reason_end_the_rest(folder):
    graph = [Toy(folder=folder, key=str(i), action="user error", argument="the plan is wrong") for i in range(5)]
    states = [ending.state for ending in _run(graph).values()]
    assert states == ["failed", "failed", "failed", "stopped", "stopped"]


def test_a_bug_and_an_interrupt_are_raised_as_they_are(folder, monkeypatch):
    with pytest.raises(ValueError, match="my bug"):
        _run([Toy(folder=folder, key="a", action="bug", argument="my bug")])
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "1")
    from infoflow.foundation import UserError

    with pytest.raises(UserError, match="mine alone"):  # the other processes would wait for this one
        _run([Toy(folder=folder, key="a", action="user error", argument="mine alone")])


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_stop_saves_and_the_same_call_goes_on(folder, number):
    import signal

    graph = [Toy(folder=folder, key="a", action="count", argument=100)]
    timer = threading.Timer(0.2, os.kill, (os.getpid(), getattr(signal, number)))
    timer.start()
    with pytest.raises(KeyboardInterrupt, match="Stopped after update"):
        _run(graph)
    timer.join()
    assert _run(graph)["a"].facts["value"] == counted(100)


def test_threads_are_the_stages_and_then_the_callers_again(folder, monkeypatch):
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    endings = _run([Toy(folder=folder, key="a", action="look", threads=2)])
    assert endings["a"].usage.threads == 2
    assert endings["a"].facts["threads"] == "2"
    assert torch.get_num_threads() == 1
    assert os.environ["OMP_NUM_THREADS"] == "1"
