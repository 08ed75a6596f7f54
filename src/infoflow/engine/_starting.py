"""The process of a stage: how it is forked or spawned, its lock, its threads, and the resources that it uses.

A child of `multiprocessing` imports its parent's `__main__`, so that a script without the guard `if __name__ ==
"__main__"` would run itself again in each child. Children started here never do.
"""

import io
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe, reduction, spawn
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from infoflow.foundation import current_display, is_still, lock_file, processor, read_object, set_threads

from ._stage import Usage

PRIMITIVES = "64"
"""Number of primitives that oneDNN caches, one per shape; its own default is 1,024.

With the default and batches of all lengths, a small translation model grew to 2.3 GB in twelve minutes; with 16
primitives it stayed at 0.9 GB, at the same speed.
"""

_here = threading.local()
_preparation = spawn.get_preparation_data


def _preparation_without_main(name: str) -> dict[str, Any]:
    data = _preparation(name)
    if getattr(_here, "starting", False):  # this thread is starting one of our processes
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
    return data


spawn.get_preparation_data = _preparation_without_main


class Spawner:
    """Starts each process afresh, which then imports everything it needs; for systems without a fork server."""

    def open(self) -> None:
        pass

    def start(self, target: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
        """Start `target(*arguments, connection)` in a process; returns it and our end of the connection."""
        return _start(SpawnProcess, target, arguments)

    def close(self) -> None:
        pass


def _start(kind: Callable[..., BaseProcess], target: Callable[..., None], arguments: Sequence[Any]):
    ours, theirs = Pipe()
    _here.starting = True
    try:
        process = kind(target=target, args=(*arguments, theirs))
        process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        _here.starting = False
        theirs.close()
    return process, ours


if sys.platform == "linux":
    from multiprocessing.context import (
        ForkServerProcess,
        set_spawning_popen,  # pyright: ignore[reportAttributeAccessIssue]
    )
    from multiprocessing.forkserver import ForkServer, read_signed  # pyright: ignore[reportAttributeAccessIssue]
    from multiprocessing.popen_forkserver import Popen
    from multiprocessing.util import Finalize, close_fds  # pyright: ignore[reportAttributeAccessIssue]

    class _Popen(Popen):
        """Like its parent class, but with our own server instead of the one that all processes of a program share."""

        def __init__(self, process: BaseProcess) -> None:
            self._polling = threading.Lock()
            super().__init__(process)

        def _launch(self, process: BaseProcess) -> None:
            buffer = io.BytesIO()
            set_spawning_popen(self)
            try:
                reduction.dump(spawn.get_preparation_data(process.name), buffer)
                reduction.dump(process, buffer)
            finally:
                set_spawning_popen(None)
            self.sentinel, writable = _here.server.connect_to_new_process(self._fds)
            kept = os.dup(writable)  # it shows the child whether this process lives
            self.finalizer = Finalize(self, close_fds, (kept, self.sentinel))
            with open(writable, "wb", closefd=True) as file:  # noqa: PTH123 (a descriptor)
                file.write(buffer.getbuffer())
            self.pid = read_signed(self.sentinel)

        def poll(self, flag: int = os.WNOHANG) -> int | None:
            # An exit code can be read only once, and starting a process polls all others, here from many threads.
            with self._polling:
                return super().poll(flag)

    class _Process(ForkServerProcess):
        @staticmethod
        def _Popen(process: BaseProcess) -> _Popen:
            return _Popen(process)

    class Forker:
        """Forks processes from a server that imports `preload` once: .3 s instead of 6 for a process that needs torch.

        The server must have no threads and no CUDA, so its imports must not compute.
        """

        def __init__(self, preload: Sequence[str] = ()) -> None:
            self._server = ForkServer()
            self._server.set_forkserver_preload(["infoflow.engine._child", *preload])

        def open(self) -> None:
            """Start the server, which continues importing by itself."""
            with _environment(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false"):
                self._server.ensure_running()

        def start(self, target: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
            """As `Spawner.start`."""
            _here.server = self._server
            self.open()
            return _start(_Process, target, arguments)

        def close(self) -> None:
            """End the server after its processes have ended."""
            self._server._stop()


_environment_lock = threading.Lock()


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables for processes that are started in the block."""
    with _environment_lock:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def starter(preload: Sequence[str] = ()) -> "Spawner | Forker":
    return Forker(preload) if sys.platform == "linux" else Spawner()


# Prevents two processes at one stage: one that was cut off may still save while another machine starts the stage.
_BEAT, _STALE, _LOOK = 30.0, 300.0, 1.0
"""Seconds between signs of life, until a silent holder is given up, and between checks."""


@contextmanager
def stage_lock(path: Path) -> Iterator[bool]:
    """Hold the lock `path`, waiting for its holder; yields whether another process held it before.

    If the file system refuses locks, a file next to it with a heartbeat replaces the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    waited = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            had_to_wait, held = _flock(descriptor, path)
            waited |= had_to_wait
            if not held:
                with _heartbeat(path.with_suffix(".held")) as waited:
                    yield waited
                return
            if is_still(path, descriptor):  # otherwise the previous holder has removed the file
                os.write(descriptor, _holder().encode())
                yield waited
                with suppress(PermissionError):  # Windows keeps an open file, which the next process takes
                    path.unlink(missing_ok=True)  # while the lock is held, so nobody else holds a file of this name
                return
        finally:
            os.close(descriptor)


def _flock(descriptor: int, path: Path) -> tuple[bool, bool]:
    """Lock the file; returns whether another process held the lock, and whether the file system has locks at all."""
    try:
        return False, lock_file(descriptor)
    except BlockingIOError:
        _say(path)
        return True, lock_file(descriptor, wait=True)


def _say(path: Path) -> None:
    with suppress(OSError, ValueError, KeyError):
        holder = read_object(path)
        current_display().note(
            f"Waiting for process {holder['process']} on {holder['host']}, which is running this stage."
        )
        return
    current_display().note("Waiting for another process, which is running this stage.")


def _holder() -> str:
    return json.dumps({"host": platform.node(), "process": os.getpid()})


@contextmanager
def _heartbeat(path: Path) -> Iterator[bool]:
    waited = False
    while not _take(path):
        if not waited:
            _say(path)
        waited = True
        if _is_stale(path):
            with suppress(FileNotFoundError):
                path.unlink()
        else:
            time.sleep(_LOOK)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(lambda: ended.wait(_BEAT), path), daemon=True)
    beating.start()
    try:
        yield waited
    finally:
        ended.set()
        beating.join()
        path.unlink(missing_ok=True)


def _take(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_holder())
    return True


def _beat(ended: Callable[[], bool], path: Path) -> None:
    while not ended():
        with suppress(OSError):
            os.utime(path)


def _is_stale(path: Path) -> bool:
    """Whether the holder has been silent for too long by the file system's clock, since the machines' clocks differ."""
    probe = path.with_suffix(f".{platform.node()}-{os.getpid()}")
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime > _STALE
    except FileNotFoundError:
        return False
    finally:
        probe.unlink(missing_ok=True)


class Meter:
    """Measures the resources that this process uses, from the creation of the meter."""

    def __init__(self) -> None:
        self._start, self._cpu = time.monotonic(), _cpu_seconds()

    def usage(self, device: str, threads: int) -> Usage:
        torch = sys.modules.get("torch")
        return Usage(
            seconds=round(time.monotonic() - self._start, 3),
            cpu_seconds=round(_cpu_seconds() - self._cpu, 3),
            peak_memory=_peak_memory(),
            host=platform.node(),
            processor=processor(),
            device=device or "cpu",
            threads=torch.get_num_threads() if torch else threads,
        )


def use_threads(threads: int) -> None:
    """Give torch and BLAS that many threads; a later import of torch finds the number in the environment."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if "torch" in sys.modules:
        set_threads(threads)


def _cpu_seconds() -> float:
    return time.process_time() + sum(os.times()[2:4])  # child processes are measured only in hundredths of a second


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
