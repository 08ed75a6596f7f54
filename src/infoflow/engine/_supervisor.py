"""Starts the processes of one worker, relays their messages, assigns GPUs, and stops them."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from ._child import BUG, DONE, FAULT, STOPPED, StageMessage, log_path, run_stage, stored_result
from ._stage import Message
from ._starting import Forker, Spawner

_STARTS = 4
_LAST_LINES = 40
_KILLED = 9  # undefined on Windows
_LOST = 255  # the fork server died, and the process's exit code with it


class Stopped(Exception):
    """The study stops, and the stage has saved what it can."""


class Leaving(Exception):
    """The worker leaves, and another should continue."""


class StageFailed(Exception):
    """A stage failed.

    Args:
        key: Key of the stage.
        reason: One or two lines, equal for equal faults.
        text: The reason, with an excerpt of the log for a bug.
        log: The file with all the stage's output.
    """

    def __init__(self, key: str, reason: str, text: str, log: str) -> None:
        super().__init__(key, reason, text, log)
        self.key, self.reason, self.text, self.log = key, reason, text, log


class _NotStarted(Exception):
    """The fork server ended before it had started the process."""


class _Running:
    def __init__(self, key: str, process: BaseProcess, connection: Connection) -> None:
        self.key, self.process, self.connection = key, process, connection
        self.given_up = False
        self._stop_sent = threading.Lock()
        self.result: Message | None = None
        self.error = ""

    def stop(self) -> None:
        with suppress(OSError):
            if self._stop_sent.acquire(blocking=False):  # only once
                self.connection.send_bytes(b"stop")

    def kill(self) -> None:
        with suppress(OSError, ValueError):
            self.process.kill()

    def listen(self, tell: Callable[[Message], None]) -> int:
        """Relay the process's messages until it ends; returns its exit code."""
        ended = False
        while not ended:
            ended = self.process.sentinel in wait([self.connection, self.process.sentinel])
            with suppress(EOFError, OSError):
                while self.connection.poll():
                    self._take(self.connection.recv_bytes(), tell)
        self.process.join()
        self.connection.close()
        code = self._code()
        if code in (None, _LOST):  # the process may still be alive
            self.kill()
            code = -signal.SIGTERM
        self.process.close()
        return code

    def _code(self) -> int | None:
        """The process's exit code, which another thread that starts a process may be fetching at this moment."""
        deadline = time.monotonic() + 1
        while self.process.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.process.exitcode

    def _take(self, line: bytes, tell: Callable[[Message], None]) -> None:
        message = json.loads(line)
        if message["event"] == "done":
            self.result = message
        elif message["event"] == "error":
            self.error = message["text"]
        else:
            tell(message)


class Supervisor:
    """The processes of one study on one worker; all methods may be called from any thread."""

    def __init__(self, starter: Forker | Spawner, devices: Sequence[str] = ()) -> None:
        self._starter = starter
        self._devices = tuple(devices)
        self._running: set[_Running] = set()
        self._changed = threading.Condition()
        self._stopping = self._leaving = False

    def supervise(self, order: StageMessage, gpus: float, tell: Callable[[Message], None]) -> Message:
        """Run a stage to its end; returns `{"facts": ..., "usage": ...}`."""
        if (stored := stored_result(order)) is not None:
            return stored
        log = str(log_path(order.folder, order.key))
        for start in range(_STARTS):
            try:
                with self._device(gpus) as device:
                    code, running = self._run(replace(order, device=device), tell)
            except _NotStarted:
                code = -signal.SIGTERM
                self._pause()
                continue
            if running.result is not None:
                return running.result
            self._check_open()
            if running.given_up:
                raise Leaving
            if code in (DONE, FAULT):
                reason = running.error or "It ended without a result."
                raise StageFailed(order.key, reason, reason, log)
            if code == BUG or (code > 0 and code != STOPPED):
                reason = running.error or f"It ended with code {code}."
                raise StageFailed(order.key, reason, f"{reason}\n{last_lines(log)}", log)
            self._pause()
            if start + 1 < _STARTS:
                tell({"event": "note", "text": f"was {_ended(code)} and is restarted."})
        reason = f"was {_ended(code)} {_STARTS} times. {_ADVICE}"
        raise StageFailed(order.key, reason, reason, log)

    def stop(self) -> None:
        """Start nothing more, and ask running stages to save and stop."""
        self._end(stopping=True)

    def leave(self) -> None:
        self._end(stopping=False)

    def _end(self, stopping: bool) -> None:
        with self._changed:
            self._stopping |= stopping
            self._leaving |= not stopping
            running = list(self._running)
            self._changed.notify_all()
        for child in running:
            child.stop()

    def kill(self) -> None:
        self.stop()
        with self._changed:
            running = list(self._running)
        for child in running:
            child.kill()

    def give_up(self, key: str) -> None:
        """Ask the process of one stage that is no longer wanted here to save and stop."""
        with self._changed:
            children = [child for child in self._running if child.key == key]
        for child in children:
            child.given_up = True
            child.stop()

    def is_idle(self) -> bool:
        return not self._running

    def wait(self, seconds: float) -> bool:
        """Wait until nothing runs; returns False on timeout."""
        with self._changed:
            return self._changed.wait_for(self.is_idle, seconds)

    def _check_open(self) -> None:
        if self._stopping:
            raise Stopped
        if self._leaving:
            raise Leaving

    def _run(self, order: StageMessage, tell: Callable[[Message], None]) -> tuple[int, _Running]:
        with self._changed:
            self._check_open()
            running = _Running(order.key, *_started(self._starter, order))
            self._running.add(running)
        try:
            return running.listen(tell), running
        finally:
            with self._changed:
                self._running.discard(running)
                self._changed.notify_all()

    def _pause(self) -> None:
        """Wait a moment, since whoever ended the process often ends its worker or study next."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._leaving, 0.5)
        self._check_open()

    @contextmanager
    def _device(self, gpus: float) -> Iterator[str | None]:
        """The least loaded GPUs, reserved while a stage uses its share; None for a stage without a GPU."""
        if not self._devices:
            yield None
            return
        count = max(1, round(gpus)) if gpus else 0
        with _load_lock:
            chosen = sorted(self._devices, key=lambda device: _load.get(device, 0.0))[:count]
            for device in chosen:
                _load[device] = _load.get(device, 0.0) + gpus / count
        try:
            yield ",".join(chosen)
        finally:
            with _load_lock:
                for device in chosen:
                    _load[device] -= gpus / count


_load: dict[str, float] = {}  # by device, for this whole process, since its studies share the devices
_load_lock = threading.Lock()


def _started(starter: Forker | Spawner, order: StageMessage) -> tuple[BaseProcess, Connection]:
    try:
        return starter.start(run_stage, order)
    except AssertionError as error:  # multiprocessing does not allow daemonic processes to have children
        raise RuntimeError(
            "This Dask worker may not start processes: its nanny started it as a daemon. Start it with the setting "
            "distributed.worker.daemon: false, or without a nanny (--no-nanny)."
        ) from error
    except (EOFError, ConnectionError) as error:
        raise _NotStarted from error


def _ended(code: int) -> str:
    if code == STOPPED:
        return "stopped from outside"
    if code == -_KILLED:
        return "killed (signal 9: by the system, which had too little memory, or by hand)"
    with suppress(ValueError):
        return f"ended by the system ({signal.Signals(-code).name})"
    return f"ended by signal {-code}"


_ADVICE = (
    "The most common cause is too little memory: run the same command with fewer --processes. Finished work is kept."
)


def last_lines(log: str) -> str:
    try:
        with Path(log).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 20_000))
            return b"\n".join(file.read().splitlines()[-_LAST_LINES:]).decode(errors="replace")
    except OSError:
        return ""
