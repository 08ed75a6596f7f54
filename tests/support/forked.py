"""Scripts that need not import torch again: in a process of their own, for tests that kill what they start, or here."""

import faulthandler
import multiprocessing
import os
import runpy
import socket
import sys
import time
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")  # a process without threads, which can be forked safely
_PATIENCE = 300  # seconds
_PARTS = ("measures", "stages", "claims", "command")
_SUBJECTS = [path.parent.name for path in Path(__file__).parents[2].glob("src/infoflow/subjects/*/README.md")]
_SERVER.set_forkserver_preload(
    [
        *("infoflow.dynamics", "infoflow.studies", "infoflow.training", "infoflow.cli", "cyclopts", "rich", "pytest"),
        *(f"infoflow.subjects.{subject}.{part}" for subject in _SUBJECTS for part in _PARTS),  # those that exist
    ]
)


def run_here(script: Path, *arguments: str | Path) -> None:
    """Run a script in this process, as `python SCRIPT ARGUMENTS` would."""
    before = sys.argv
    sys.argv = [str(script), *map(str, arguments)]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = before


def start_script(script: Path, *arguments: str | Path) -> BaseProcess:
    """Run a script as `python SCRIPT ARGUMENTS` would, without waiting for its end."""
    process = _SERVER.Process(target=run_here, args=(script, *arguments))
    process.start()
    return process


def run_script(script: Path, *arguments: str | Path) -> int:
    """Run a script as `python SCRIPT ARGUMENTS` would; its exit code, negative for the signal that killed it."""
    return _ended(start_script(script, *arguments))


def run_together(script: Path, *arguments: str | Path, processes: int = 2) -> None:
    """Run a script in as many processes as `torchrun` would start, with the variables that it would set.

    What depends on the launcher is tested with it: flow/test_heartbeat.py, studies/test_distributed.py.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []
    for rank in range(processes):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
        environment = {name: str(value) for name, value in variables.items()}
        process = _SERVER.Process(target=_run_with, args=(environment, script, *arguments))
        process.start()
        started.append(process)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and all(process.exitcode in (None, 0) for process in started):
        running = [process.sentinel for process in started if process.exitcode is None]
        if not running:
            return
        wait(running, timeout=1)
    codes = [process.exitcode for process in started]
    for process in started:  # those that wait for one that has died
        process.kill()
    raise AssertionError(f"Exit codes of the {processes} processes: {codes}; None: still running.")


def _run_with(environment: dict[str, str], script: Path, *arguments: str | Path) -> None:
    faulthandler.enable()  # a process that dies by a signal says where
    os.environ.update(environment)
    run_here(script, *arguments)


def _ended(process: BaseProcess) -> int:
    process.join(timeout=_PATIENCE)
    code = process.exitcode
    process.kill()
    assert code is not None, f"{process.name} did not end"
    return code
