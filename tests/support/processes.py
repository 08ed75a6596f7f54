"""Processes that a test started, and those that they started: all inherit a variable of the environment."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MARK = "INFOFLOW_TEST"


def marked_environment(mark: Path) -> dict[str, str]:
    """For processes to be found again by `processes_with`; they can import what tests share."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, MARK: str(mark), "PYTHONPATH": path}


def processes_with(mark: Path) -> list[int]:
    """Ids of the processes that run with that mark (on Linux)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ended = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            variables = (folder / "environ").read_bytes().split(b"\0")
            if not ended and f"{MARK}={mark}".encode() in variables:
                found.append(int(folder.name))
    return found


def wait_until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
