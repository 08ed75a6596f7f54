"""Random kills of every process that runs a graph of stages: does it end as an undisturbed run, and is anything left?

    python experiments/campaigns/engine/kills.py [--trials 60] [--out experiments/campaigns/engine/kills.csv]

A graph of six stages that save after each update, and two that need them, runs in one of three places and is hit once
at a random moment. Then, if the study has ended, it is called again. A trial is right where the results are those of an
undisturbed run, where no process of the trial is left 5 s later, and where no stage has done more than one update
twice. Trials that the file has are not run again. What is killed:

    child      the process of a stage, on one machine (-9): the study itself starts it again
    server     the fork server from which they come (-9)
    study      the study, on one machine (-9)
    interrupt  the study, on one machine, by Ctrl-C or SIGTERM
    worker     one of two joined workers (-9): the study goes on
    leaving    the same by SIGTERM
    host       the study, while two joined workers work for it (-9): they wait for the next call
    scheduler  the scheduler of a Dask cluster of others, its workers with it (-9)
    client     the study, while a cluster of others works for it (-9)
"""

import argparse
import csv
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

KINDS = ("child", "server", "study", "interrupt", "worker", "leaving", "host", "scheduler", "client")
COLUMNS = (
    "trial", "kind", "hit_at_s", "exit_code", "calls", "equal", "left_after_5_s", "gone_after_s", "most_redone_updates",
    "starts", "seconds",
)  # fmt: skip
UPDATES = 60
MARK = "INFOFLOW_KILLS_TRIAL"


# -- the graph, and the programs of a trial ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Counting:
    """A sequence, saved after each of its updates, or the sum of what others ended with."""

    folder: str
    key: str
    needs: tuple[str, ...] = ()
    cost: float = 1.0
    threads: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"count {self.key}"

    def path(self, kind: str, key: str | None = None) -> Path:
        return Path(self.folder) / f"{key or self.key}.{kind}"

    def is_done(self) -> bool:
        return self.path("result").exists()

    def run(self) -> dict[str, Any]:
        if self.needs:
            value = sum(json.loads(self.path("result", need).read_text()) for need in self.needs)
        else:
            value = self._count()
        _write(self.path("result"), value)
        return {"value": value}

    def _count(self) -> int:
        from infoflow.foundation import stop_request

        state = json.loads(self.path("state").read_text()) if self.path("state").exists() else [0, 1]
        with self.path("starts").open("a") as starts:
            starts.write(".")
        with stop_request() as request, self.path("work").open("a") as work:
            while state[0] < UPDATES:
                stop = request.received
                time.sleep(0.01)
                work.write(".")
                work.flush()
                state = [state[0] + 1, (state[1] * 6364136223846793005 + len(self.key)) % 2**61]
                _write(self.path("state"), state)
                if stop:
                    raise KeyboardInterrupt(f"Stopped after update {state[0]}.")
        return state[1]


def _write(path: Path, value: Any) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value))
    partial.replace(path)


def graph(folder: str) -> list[Counting]:
    stages = [Counting(folder=folder, key=key) for key in "abcdef"]
    return [
        *stages,
        Counting(folder=folder, key="abc", needs=("a", "b", "c")),
        Counting(folder=folder, key="all", needs=("abc", "d", "e", "f")),
    ]


def stage_of(folder: str, key: str) -> Counting:
    return next(stage for stage in graph(folder) if stage.key == key)


def study(folder: str, where: str) -> int:
    """The program that is hit: 0 done, 1 failed, 130 interrupted."""
    from infoflow.engine import check_endings, cluster_engine, local_engine
    from infoflow.foundation import UserError, sigterm_interrupts

    entry = {"entry": "kills:stage_of"}
    engine = local_engine(2, folder=folder, **entry) if where == "here" else cluster_engine(where, folder, **entry)
    stages = [stage for stage in graph(folder) if not stage.is_done()]
    try:
        with sigterm_interrupts(), engine:
            (Path(folder) / "begun").touch()
            check_endings(stages, engine.run(stages, lambda event: None))
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def join(folder: str) -> int:
    """A worker that waits for the study of the trial."""
    from infoflow.engine import worker

    return worker(folder, jobs=1, patience="5m")


# -- a trial -----------------------------------------------------------------------------------------------------------


class Trial:
    """The processes of one trial."""

    def __init__(self, kind: str, folder: str) -> None:
        self.kind, self.folder, self.mark = kind, folder, secrets.token_hex(8)
        here = str(Path(__file__).parent)
        path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
        self.environment = {**os.environ, MARK: self.mark, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self.log = Path(folder) / "programs.log"
        self.helpers: list[subprocess.Popen] = []
        self.stuck = 0
        self.where = {"worker": "listen:127.0.0.1", "leaving": "listen:127.0.0.1", "host": "listen:127.0.0.1"}.get(
            kind, f"{folder}/scheduler.json" if kind in ("scheduler", "client") else "here"
        )

    def program(self, *arguments: str) -> subprocess.Popen:
        with self.log.open("a") as log:
            command = [sys.executable, "-X", "faulthandler", *arguments]
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, cwd=self.folder)

    def start_helpers(self) -> None:
        if self.where.startswith("listen"):
            self.helpers = [self.program(__file__, "--join", self.folder) for _ in range(2)]
        elif self.where != "here":
            file = Path(self.where)
            file.unlink(missing_ok=True)
            local = ("--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file))
            self.helpers = [
                self.program("-m", "dask", "scheduler", *local, "--port", "0"),
                self.program("-m", "dask", "worker", *local, "--no-nanny", "--nthreads", "2", "--death-timeout", "9"),
            ]
            _await(file.exists)

    def start_study(self) -> subprocess.Popen:
        (Path(self.folder) / "begun").unlink(missing_ok=True)
        return self.program(__file__, "--study", self.folder, self.where)

    def processes(self) -> list[psutil.Process]:
        """All that bear the mark of this trial, wherever they hang by now."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def children(self) -> list[psutil.Process]:
        """Processes of stages: each leads a session of its own below a fork server."""
        server = [process.pid for process in self.servers()]
        return [process for process in self.processes() if process.ppid() in server]

    def servers(self) -> list[psutil.Process]:
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                parent = process.parent()
                if parent is not None and _is_server(process) and not _is_server(parent):
                    found.append(process)
        return found

    def hit(self, process: subprocess.Popen, rng: random.Random) -> None:
        if self.kind == "child" and (children := self.children()):
            rng.choice(children).kill()
        elif self.kind == "server" and (servers := self.servers()):
            rng.choice(servers).kill()
        elif self.kind in ("study", "host", "client"):
            process.kill()
        elif self.kind == "interrupt":
            process.send_signal(rng.choice([signal.SIGINT, signal.SIGTERM]))
        elif self.kind in ("worker", "leaving"):
            rng.choice(self.helpers).send_signal(signal.SIGKILL if self.kind == "worker" else signal.SIGTERM)
        elif self.kind == "scheduler":
            self.helpers[0].kill()

    def stop_helpers(self) -> None:
        """One after another: Dask's own worker hangs where its scheduler and it are stopped at once."""
        for helper in reversed(self.helpers):
            helper.terminate()
            try:
                helper.wait(timeout=60)
            except subprocess.TimeoutExpired:  # it is counted as left; its stacks are in the log
                helper.send_signal(signal.SIGABRT)
                helper.wait()
                self.stuck += 1


def _is_server(process: psutil.Process) -> bool:
    return "multiprocessing.forkserver" in " ".join(process.cmdline())


def _await(holds, seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def run_trial(number: int, kind: str, expected: dict[str, int]) -> dict[str, Any]:
    """Hit a study of that kind at a moment that its number draws."""
    rng = random.Random(f"kills-{number}-{kind}")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        trial = Trial(kind, folder)
        trial.start_helpers()
        process = trial.start_study()
        _await((Path(folder) / "begun").exists)
        moment = rng.uniform(0.0, 4.5)
        time.sleep(moment)
        trial.hit(process, rng)
        code = process.wait(timeout=120)
        calls, left, gone = 1, 0, 0.0
        if code != 0:
            hit = time.monotonic()
            _await(lambda: not _of_the_study(trial), 5.0)
            left, gone = len(_of_the_study(trial)), time.monotonic() - hit
        while code != 0 and calls < 4:
            if kind == "scheduler":
                trial.stop_helpers()
                trial.start_helpers()
            calls += 1
            code = trial.start_study().wait(timeout=240)
        trial.stop_helpers()
        _await(lambda: not trial.processes(), 10.0)
        if survivors := trial.processes():
            print(survivors)
        left += len(survivors) + trial.stuck
        if left or code != 0:
            print(trial.log.read_text())
        return {
            "trial": number, "kind": kind, "hit_at_s": round(moment, 2), "exit_code": code, "calls": calls,
            "equal": results(folder) == expected, "left_after_5_s": left, "gone_after_s": round(gone, 2),
            "most_redone_updates": redone(folder), "starts": starts(folder),
            "seconds": round(time.monotonic() - begun, 1),
        }  # fmt: skip


def _of_the_study(trial: Trial) -> list[psutil.Process]:
    """Processes of stages, and of a study on one machine all others: workers stay for the next study."""
    return trial.processes() if trial.where == "here" else trial.children()


def results(folder: str) -> dict[str, int]:
    found = {}
    for stage in graph(folder):
        with suppress(FileNotFoundError):
            found[stage.key] = json.loads(stage.path("result").read_text())
    return found


def redone(folder: str) -> int:
    """Updates that a stage has done more than once, over its restarts; the most of any stage."""
    return max(len((Path(folder) / f"{key}.work").read_text()) - UPDATES for key in "abcdef")


def starts(folder: str) -> int:
    return sum(len((Path(folder) / f"{key}.starts").read_text()) for key in "abcdef")


def undisturbed() -> dict[str, int]:
    """What the stages end with, one after another in this process."""
    from infoflow.engine import InTurn

    with tempfile.TemporaryDirectory() as folder, InTurn() as engine:
        engine.run(graph(folder), lambda event: None)
        return results(folder)


def main(trials: int, out: Path) -> None:
    rows = list(csv.DictReader(out.open())) if out.exists() else []
    done = {int(row["trial"]) for row in rows}
    expected = undisturbed()
    with out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not rows:
            writer.writeheader()
        for number in range(trials):
            if number not in done:
                row = run_trial(number, KINDS[number % len(KINDS)], expected)
                writer.writerow(row)
                file.flush()
                print(row, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=63)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("kills.csv"))
    parser.add_argument("--study", nargs=2)
    parser.add_argument("--join")
    options = parser.parse_args()
    if options.study:
        sys.exit(study(*options.study))
    if options.join:
        sys.exit(join(options.join))
    main(options.trials, options.out)
