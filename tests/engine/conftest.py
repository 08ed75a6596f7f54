"""What tests of the engine share. After each of them no thread, process or socket may be left."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # what a shell starts in the background does not hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
OURS = ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "CUDA_VISIBLE_DEVICES")
"""Variables that the engine sets for its processes, and never for the caller."""


def _processes() -> set[int]:
    """Processes below this one but Python's tracker of shared memory, which serves the whole program."""
    below = psutil.Process().children(recursive=True)
    return {process.pid for process in below if "resource_tracker" not in " ".join(_command(process))}


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _threads() -> set[threading.Thread]:
    """Threads but one that Dask keeps for the whole program."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Dask-Offload")}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    import distributed  # noqa: F401 (it is imported once, and not by the test alone)
    from open_sockets import sockets

    before = _processes(), _threads(), sockets()
    environment = {name: os.environ.get(name) for name in OURS}
    yield
    deadline = time.monotonic() + 5
    while (left := [now - then for now, then in zip((_processes(), _threads(), sockets()), before, strict=True)]) != [
        set(),
        set(),
        set(),
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
    assert environment == {name: os.environ.get(name) for name in OURS}


@pytest.fixture(autouse=True)
def _quiet(caplog) -> None:
    """Of Dask's own log only what may be a fault."""
    caplog.set_level("WARNING", "distributed")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "run")


@pytest.fixture(autouse=True)
def _run_folder(folder: str) -> None:
    Path(folder).mkdir()
