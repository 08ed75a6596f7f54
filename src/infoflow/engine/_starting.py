"""Processes for stages, forked from a server with their imports, or spawned on systems without fork.

A child of `multiprocessing` imports its parent's `__main__`, so that a script without the guard `if __name__ ==
"__main__"` would run itself again in each child. Children started here never do.
"""

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe, reduction, spawn
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any

PRIMITIVES = "64"
"""Cached primitives of oneDNN, one per shape, 1,024 by default.

With batches of all lengths a small translation model grew to 2.3 GB in twelve minutes; with 16 it stayed at 0.9 GB, at
the same speed.
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
        """As its parent, but with a server of our own instead of the one that all processes of a program share."""

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
            # The code can be read only once, and each start of a process polls all others, here from many threads.
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
    """The object that starts processes on this system."""
    return Forker(preload) if sys.platform == "linux" else Spawner()
