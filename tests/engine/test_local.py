"""The engine on one machine: processes, their endings, stopping, and what is left open (nothing)."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from toy_stages import ENTRY, Toy, counted, written

from infoflow.engine import _worker
from infoflow.engine._child import StageMessage, _await_folder, _await_needs
from infoflow.engine._stage import path_lengths
from infoflow.engine._starting import Spawner, starter
from infoflow.engine._supervisor import Supervisor
from infoflow.engine._where import RunNotes

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


def run(graph, on_event=lambda event: None, jobs=2, **options):
    from infoflow.engine import local_engine

    with local_engine(jobs, folder=graph[0].folder, entry=ENTRY, **options) as engine:
        return engine.run(written(graph), on_event)


def test_stages_run_in_processes_of_their_own_after_what_they_need(folder):
    events, threads = [], set()
    graph = [
        Toy(folder=folder, key="b", needs=("a",), action="look"),
        Toy(folder=folder, key="a", action="count", argument=20),
        Toy(folder=folder, key="c", action="look", threads=2),
    ]
    endings = run(graph, lambda event: (events.append(event), threads.add(threading.current_thread())))
    assert {ending.state for ending in endings.values()} == {"done"}
    assert endings["a"].facts["value"] == counted(20)
    b, c = endings["b"].facts, endings["c"].facts
    assert len({b["process"], c["process"], os.getpid()}) == 3
    assert (b["session"], c["session"]) == (b["process"], c["process"])
    assert (b["threads"], c["threads"], endings["c"].usage.threads) == ("1", "2", 2)
    assert threads == {threading.current_thread()}
    of_a = [event.kind for event in events if event.stage == "a"]
    assert of_a in (["start", "progress", "end"], ["start", "progress", "progress", "end"])  # at most one in a while
    assert "before the bug" not in (Path(folder) / "work/logs/a.log").read_text()
    assert not list((Path(folder) / "work/.engine").glob("*/*"))


def _longest(stage: Toy, graph: list[Toy]) -> float:
    """By the definition: its cost, and the longest chain among those that need it."""
    after = [_longest(other, graph) for other in graph if stage.key in other.needs]
    return stage.cost + max(after, default=0.0)


@pytest.mark.parametrize("seed", range(20))
def test_a_stage_s_priority_is_its_longest_chain(seed):
    draws = random.Random(seed)
    rank = draws.sample(range(12), 12)
    graph = []
    for index in range(12):
        earlier = [str(other) for other in range(12) if rank[other] < rank[index]] + ["elsewhere"]
        needs = draws.sample(earlier, draws.randint(0, min(4, len(earlier))))
        graph.append(Toy(folder="", key=str(index), needs=tuple(needs), cost=float(draws.randint(0, 9))))
    assert path_lengths(graph) == {stage.key: _longest(stage, graph) for stage in graph}


def test_children_import_what_is_preloaded_once(folder):
    from infoflow.engine import local_engine

    graph = written([Toy(folder=folder, key=str(i), action="look") for i in range(20)])
    with local_engine(2, ("toy_stages",), folder=folder, entry=ENTRY) as engine:
        engine.run(graph[:1], lambda event: None)
        start = time.monotonic()
        endings = engine.run(graph[1:], lambda event: None)
        assert (time.monotonic() - start) / 19 < 0.3  # .05 on a quiet machine
    assert len({ending.facts["parent"] for ending in endings.values()}) == 1


def test_each_exit_is_told_and_the_others_results_are_kept(folder):
    from infoflow.engine import check_endings
    from infoflow.foundation import UserError

    graph = [
        Toy(folder=folder, key="bug", action="bug", argument="x is 3"),
        Toy(folder=folder, key="after", needs=("bug",)),
        Toy(folder=folder, key="later", needs=("after",)),
        Toy(folder=folder, key="user", action="user error", argument="--x must be 1. Got 2."),
        Toy(folder=folder, key="full", action="full"),
        Toy(folder=folder, key="killed", action="die", argument=9),
        Toy(folder=folder, key="again", action="die", argument=3),
        Toy(folder=folder, key="good", needs=("again",)),
    ]
    notes = []
    endings = run(graph, lambda event: notes.append(event.text) if event.kind == "note" else None)
    states = {key: ending.state for key, ending in endings.items()}
    assert states == {
        "bug": "failed", "after": "skipped", "later": "skipped", "user": "failed", "full": "failed",
        "killed": "failed", "again": "done", "good": "done",
    }  # fmt: skip
    assert (endings["after"].because, endings["later"].because) == ("bug", "bug")
    log = Path(folder) / "work" / "logs"
    assert endings["bug"].log == str(log / "bug.log")
    assert endings["bug"].text.startswith("ValueError: x is 3\n")
    assert "before the bug\nTraceback" in endings["bug"].text
    assert endings["user"].text == "--x must be 1. Got 2."
    assert "The disk is full" in endings["full"].text
    assert "killed (signal 9" in endings["killed"].text
    assert "4 times" in endings["killed"].text
    assert "fewer --processes" in endings["killed"].text
    assert endings["again"].facts == {"deaths": 3}
    assert sum("is restarted" in note for note in notes) == 3 + 3
    with pytest.raises(UserError, match=r"(?s)bug bug: ValueError: x is 3.*Its log: .*bug.log.*user error user: --x"):
        check_endings(graph, endings)


def test_three_failures_for_one_reason_end_the_rest(folder):
    graph = [Toy(folder=folder, key=f"bad{i}", action="user error", argument="no", cost=9.0) for i in range(3)]
    graph += [Toy(folder=folder, key=f"slow{i}", action="count", argument=2000) for i in range(3)]
    start = time.monotonic()
    endings = run(graph)
    assert time.monotonic() - start < 15
    assert [endings[f"bad{i}"].state for i in range(3)] == ["failed"] * 3
    assert [endings[f"slow{i}"].state for i in range(3)] == ["stopped"] * 3


def test_the_longest_path_goes_first(folder):
    costs = {"short": 2.0, "long": 5.0, "head": 1.0, "middle": 4.0}
    graph = [Toy(folder=folder, key=key, cost=cost) for key, cost in costs.items()]
    graph.append(Toy(folder=folder, key="tail", cost=8.0, needs=("head",)))
    started = []
    run(graph, lambda event: started.append(event.stage) if event.kind == "start" else None, jobs=1)
    assert [key for key in started if key != "tail"] == ["head", "long", "middle", "short"]


def test_an_error_in_the_study_stops_the_stages(folder):
    graph = [Toy(folder=folder, key="a", action="count", argument=2000)]
    told = []

    def fail(event):
        told.append(event.text)
        if event.kind == "progress":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(graph, fail)
    assert told[-1] == "Stopping: running stages save their state. Press Ctrl-C again to stop at once."
    assert (Path(folder) / "a.state").exists()
    assert "Stopped after update" in (Path(folder) / "work/logs/a.log").read_text()


def test_stages_share_devices_evenly(folder, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,GPU-8932f937")
    half = {"resources": {"GPU": 0.5}, "action": "look", "argument": 1.0}
    graph = [Toy(folder=folder, key=str(i), **half) for i in range(4)]
    graph += [Toy(folder=folder, key="both", resources={"GPU": 2.0}, action="look")]
    graph += [Toy(folder=folder, key="none", action="look")]
    order = []
    endings = run(graph, lambda event: order.append(event.stage) if event.kind == "start" else None, jobs=8)
    seen = [endings[str(i)].facts["devices"] for i in range(4)]
    assert sorted(seen) == ["0", "0", "GPU-8932f937", "GPU-8932f937"]
    assert sorted(endings["both"].facts["devices"].split(",")) == ["0", "GPU-8932f937"]
    assert endings["none"].facts["devices"] == ""
    assert endings["0"].usage.device == seen[0]


def test_what_this_machine_does_not_have_is_told(folder):
    from infoflow.foundation import UserError

    with pytest.raises(UserError, match="look a needs 1 GPU, and this machine offers 0"):
        run([Toy(folder=folder, key="a", action="look", resources={"GPU": 1.0})], devices=())


def test_nothing_listens(folder):
    from open_sockets import sockets

    before = sockets()
    seen: list[set] = []
    graph = [Toy(folder=folder, key="a", action="sleep", argument=0.3)]

    def look(event):
        if event.kind == "start":
            seen.append(sockets() - before)
            seen.append(sockets(event.fields["process"]) - before)

    run(graph, look)
    assert seen == [set(), set()]


def test_the_users_dask_configuration_is_left_alone(folder, monkeypatch):
    import dask

    with dask.config.set({"distributed.scheduler.allowed-failures": 0, "distributed.comm.require-encryption": True}):
        endings = run([Toy(folder=folder, key="a", action="look")])
        assert dask.config.get("distributed.scheduler.allowed-failures") == 0
    assert endings["a"].state == "done"


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from toy_stages import *
from infoflow.engine import local_engine
print("the script runs", flush=True)
folder = {folder!r}
graph = written([Toy(folder=folder, key=key, action="count", argument={updates}) for key in "ab"])
graph = [*graph, *written([Toy(folder=folder, key="c", needs=("a", "b"), action="look")])]
def tell(event):
    if event.kind in ("start", "note", "end"):
        print(event.kind, event.stage, event.fields.get("process", ""), event.text, flush=True)
with local_engine(2, folder=folder, entry=ENTRY) as engine:
    endings = engine.run(graph, tell)
print([endings[key].facts for key in "abc"])
"""


def start(tmp_path: Path, folder: str, updates: int) -> subprocess.Popen:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(here=str(HERE), folder=folder, updates=updates))
    return subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def children(study: subprocess.Popen, count: int) -> list[psutil.Process]:
    """The processes of the first stages, once they run, and all others of the study."""
    for _ in range(count + 1):
        study.stdout.readline()
    time.sleep(0.2)
    return [psutil.Process(study.pid), *psutil.Process(study.pid).children(recursive=True)]


def wait_until_gone(processes: list[psutil.Process], seconds: float) -> None:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    assert [process for process in alive if process.is_running() and process.status() != "zombie"] == []


def state(folder: str, key: str) -> dict:
    import json

    return json.loads((Path(folder) / f"{key}.state").read_text())


def test_a_script_without_guard_runs_once(folder, tmp_path):
    study = start(tmp_path, folder, 5)
    output, errors = study.communicate(timeout=60)
    assert study.returncode == 0, errors
    assert output.count("the script runs") == 1
    assert str(counted(5)) in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_or_killed_study_leaves_nothing_and_goes_on(folder, tmp_path, number):
    study = start(tmp_path, folder, 150)
    processes = children(study, 2)
    assert len(processes) >= 4
    study.send_signal(number)
    output, _ = study.communicate(timeout=20)
    wait_until_gone(processes, 5)
    if number == signal.SIGINT:
        assert "Stopping: running stages save their state. Press Ctrl-C again to stop at once." in output
    before = {key: state(folder, key) for key in "ab"}
    assert all(0 < before[key]["update"] < 150 for key in "ab")
    again = start(tmp_path, folder, 150)
    output, errors = again.communicate(timeout=60)
    assert again.returncode == 0, errors
    assert output.count(str(counted(150))) == 2
    assert all(state(folder, key)["starts"] == before[key]["starts"] + 1 for key in "ab")


def test_a_second_interrupt_does_not_wait(folder):
    graph = [Toy(folder=folder, key="a", action="deaf", argument=60)]

    def interrupt(event):
        if event.kind in ("start", "note"):
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(graph, interrupt)
    assert time.monotonic() - begun < 10


def test_a_result_that_a_file_system_shows_late_is_awaited(folder):
    from infoflow.engine import local_engine

    graph = written([Toy(folder=folder, key="late"), Toy(folder=folder, key="a", needs=("late",), action="look")])
    timer = threading.Timer(1.0, (Path(folder) / "late.result").touch)
    timer.start()
    with local_engine(1, folder=folder, entry=ENTRY) as engine:
        endings = engine.run(graph[1:], lambda event: None)
    timer.join()
    assert endings["a"].state == "done"


def test_a_result_that_never_appears_is_told(folder):
    from infoflow.foundation import UserError

    graph = written([Toy(folder=folder, key="late"), Toy(folder=folder, key="a", needs=("late",))])
    order = StageMessage(folder=folder, key="a", notes="", entry=ENTRY, patience=0.2)
    with pytest.raises(UserError, match="The results of nothing late are not in"):
        _await_needs(graph[1], order)


def test_a_graph_may_be_run_again(folder):
    from infoflow.engine import local_engine

    graph = written([Toy(folder=folder, key="a", action="look"), Toy(folder=folder, key="b", needs=("a",))])
    with local_engine(1, folder=folder, entry=ENTRY) as engine:
        first, second = (engine.run(graph, lambda event: None) for _ in range(2))
    assert first["a"].facts["process"] != second["a"].facts["process"]
    assert second["b"].state == "done"


def test_a_machine_without_the_folder_says_so(folder):
    from infoflow.foundation import UserError

    with pytest.raises(UserError, match="does not see the study's folder"):
        _await_folder(StageMessage(folder=folder, key="a", notes="n/1", entry=ENTRY, patience=0.2))


def test_models_train_to_the_same_bits_in_processes_as_in_turn(folder):
    """torch is preloaded, and the threads of each stage are set before it computes."""
    from infoflow.engine import InTurn

    graph = [Toy(folder=folder, key=f"t{threads}", action="train", argument=5, threads=threads) for threads in (1, 2)]
    with InTurn() as engine:
        expected = engine.run(graph, lambda event: None)
    endings = run(graph, jobs=2, preload=("torch", "toy_stages"))
    for key in ("t1", "t2"):
        assert endings[key].facts == expected[key].facts
        assert endings[key].usage.threads == int(key[1])
    assert endings["t1"].usage.peak_memory < 500e6


def test_help_imports_neither_dask_nor_torch():
    code = "import sys, infoflow.engine; print({'dask', 'distributed', 'torch'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"


def test_a_folder_that_cannot_be_written_is_told(folder):
    from infoflow.foundation import UserError

    (Path(folder) / "work").write_text("a file")
    with pytest.raises(UserError, match="cannot be written"):
        run([Toy(folder=folder, key="a")])


def test_of_two_processes_at_one_stage_one_waits_and_finds_it_done(folder):
    """As where a worker was cut off, and its stage given to another while it still saves."""
    written([Toy(folder=folder, key="a", action="count", argument=60)])
    notes, processes = RunNotes(folder), starter()
    notes.open()
    order = StageMessage(folder=folder, key="a", notes=notes.new_run(), entry=ENTRY)
    results, told = [], []

    def work() -> None:
        results.append(Supervisor(processes).supervise(order, 0.0, told.append)["facts"])

    threads = [threading.Thread(target=work) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        processes.close()
        notes.close()
    assert results == [{"value": counted(60), "updates": 60}] * 2
    assert state(folder, "a")["starts"] == 1
    assert any("which is running this stage" in message.get("text", "") for message in told)


def test_without_fork_processes_are_spawned(folder, monkeypatch):
    """As on macOS and Windows: without the caller's `__main__` too."""
    monkeypatch.setattr(_worker, "starter", lambda preload: Spawner())
    graph = [Toy(folder=folder, key="a", action="count", argument=5)]
    graph.append(Toy(folder=folder, key="b", action="look", needs=("a",)))
    endings = run(graph)
    assert endings["a"].facts["value"] == counted(5)
    assert (endings["b"].facts["parent"], endings["b"].facts["main"]) == (os.getpid(), "")


@pytest.mark.skipif(sys.platform != "linux", reason="no fork server")
def test_a_fork_server_that_ends_while_a_stage_starts_is_replaced(folder):
    """As when a signal reaches the whole process group of a worker that has just joined."""
    written([Toy(folder=folder, key="a")])
    notes, processes = RunNotes(folder), starter(["torch"])
    notes.open()
    order = StageMessage(folder=folder, key="a", notes=notes.new_run(), entry=ENTRY)
    processes.open()
    try:
        threading.Timer(0.3, os.kill, (processes._server._forkserver_pid, signal.SIGTERM)).start()
        assert Supervisor(processes).supervise(order, 0.0, lambda message: None)["facts"] == {}
    finally:
        processes.close()
        notes.close()
