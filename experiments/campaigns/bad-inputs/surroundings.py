"""What surrounds a command: its streams, limits of the system, environment variables, signals."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cases import Answer, Case, World, nothing

_DONE = (0, 2)
_SECONDS, _PATIENCE = 60, 20  # of the processor; of the clock for one of these
_VARIABLES = {
    "RANK": ("abc", "-1", "1.5", "9" * 30, " ", "1"),
    "WORLD_SIZE": ("abc", "0", "-1", "9" * 30),
    "LOCAL_RANK": ("abc", "-1"),
    "MASTER_PORT": ("abc", "99999999"),
    "OMP_NUM_THREADS": ("abc", "0", "-1", "1.5", "100000", "9" * 30, " ", "4,2"),
    "INFOFLOW_CACHE": ("binary", "binary/x", "/proc/none", "/dev/null", "n" * 300, "loop", ""),
    "HF_HOME": ("binary", "/proc/none", "n" * 300),
    "HOME": ("", "binary", "/none"),
    "TMPDIR": ("/none", "binary"),
    "COLUMNS": ("abc", "0", "-1", "9" * 30),
    "TERM": ("none", ""),
    "NO_COLOR": ("x",),
    "HF_HUB_OFFLINE": ("abc",),
    "SOURCE_DATE_EPOCH": ("abc",),
}
_LIMITS = {
    "file of 1 KB": (resource.RLIMIT_FSIZE, 1024),
    "file of 100 KB": (resource.RLIMIT_FSIZE, 100_000),
    "8 open files": (resource.RLIMIT_NOFILE, 8),
    "16 open files": (resource.RLIMIT_NOFILE, 16),
    "small stack": (resource.RLIMIT_STACK, 100_000),
}
PIPES: dict[str, Any] = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
    "text": True,
    "errors": "replace",
    "start_new_session": True,
}
_STREAMS: dict[str, Callable[[], object]] = {
    "no input": lambda: os.close(0),
    "no output": lambda: os.close(1),
    "no error": lambda: os.close(2),
    "no streams": lambda: os.closerange(0, 3),
    "full output": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1),
    "full error": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 2),
    "output to read": lambda: os.dup2(os.open("/dev/null", os.O_RDONLY), 1),
    "output without reader": lambda: _no_reader(1),
    "error without reader": lambda: _no_reader(2),
}
_SHELL = {
    "head": "{infoflow} {command} | head -1",
    "error to head": "{infoflow} {command} 2>&1 | head -1",
    "head of nothing": "{infoflow} {command} 2>&1 | true",
    "closed output": "{infoflow} {command} >&-",
    "all closed": "{infoflow} {command} <&- >&- 2>&-",
    "plain letters": "PYTHONIOENCODING=ascii LC_ALL=C {infoflow} {command} >/dev/null",
    "no locale": "env -i PATH=$PATH PYTHONPATH=$PYTHONPATH {infoflow} {command} >/dev/null",
    "1 GB": "ulimit -v 1000000; {infoflow} {command} >/dev/null",
    "3 GB": "ulimit -v 3000000; {infoflow} {command} >/dev/null",
    "folder removed": "mkdir gone; cd gone; rmdir ../gone; {infoflow} {command} >/dev/null",
}


def surrounding_cases(world: World) -> Iterator[Case]:
    analyze = ["analyze", str(world.model), *world.measuring(), "--out=out"]
    describe = ["data", "describe", str(world.sentences)]
    for name, values in _VARIABLES.items():
        for value in values:
            for command in (analyze, describe):
                yield _fork(f"{name}={value[:20]} {command[0]}", command, _variable(name, value))
    for name, (kind, limit) in _LIMITS.items():
        for command in (analyze, describe):
            yield _fork(f"{name} {command[0]}", command, _limit(kind, limit))
    for name, change in _STREAMS.items():
        for command in (analyze, describe, ["data", "describe", "nothing.txt"], ["findings", "nothing"]):
            yield _fork(f"{name} {' '.join(command[:2])[:30]}", command, change)
    for name, line in _SHELL.items():
        for command in (analyze, describe):
            yield Case(f"{name} {command[0]}", command, "", nothing, _DONE, writes=True, answer=_shell(line))
    for number in (signal.SIGINT, signal.SIGTERM):
        for seconds in (0.05, 0.5, 2.0, 5.0, 8.0):
            name = f"{number.name} after {seconds}"
            words = ["study", str(world.plan), "--out=out", "--processes=1"]
            yield Case(name, words, "", nothing, (130, -number), writes=True, answer=_stopped(number, seconds))


def _fork(name: str, command: list[str], within: Callable[[], object]) -> Case:
    return Case(name, command, "", _files, _DONE, writes=True, within=within, limit=60)


def _files(folder: Path) -> None:
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "loop").symlink_to("loop")


def _variable(name: str, value: str) -> Callable[[], object]:
    return lambda: os.environ.__setitem__(name, value)


def _limit(kind: int, limit: int) -> Callable[[], object]:
    def lower() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python itself has it
        resource.setrlimit(kind, (limit, limit))

    return lower


def _no_reader(descriptor: int) -> None:
    read, write = os.pipe()
    os.close(read)
    os.dup2(write, descriptor)


def _shell(line: str) -> Callable[[Path, list[str]], Answer]:
    def run(folder: Path, arguments: list[str]) -> Answer:
        words = " ".join(f"'{argument}'" for argument in arguments)
        script = line.format(infoflow=f"'{sys.executable}' -m infoflow", command=words)
        script = f"set -o pipefail; {script}"
        with subprocess.Popen(["bash", "-c", script], cwd=folder, **PIPES) as process:
            return ended(process)

    return run


def _stopped(number: int, seconds: float) -> Callable[[Path, list[str]], Answer]:
    def run(folder: Path, arguments: list[str]) -> Answer:
        command = [sys.executable, "-m", "infoflow", *arguments]
        with subprocess.Popen(command, cwd=folder, **PIPES) as process:
            time.sleep(seconds)
            process.send_signal(number)
            return ended(process)

    return run


def ended(process: subprocess.Popen[str]) -> Answer:
    """What a process answered; its processor time is bounded, the clock far above that: the machine may be busy."""
    with suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    try:
        out, error = process.communicate(timeout=_PATIENCE * _SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, error = process.communicate()
        return -signal.SIGKILL, out, error
    return process.returncode, out, error
