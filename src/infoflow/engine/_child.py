"""The process that runs one stage: it saves and stops on request, and never outlives its worker for long.

The request comes as the message `stop` through its pipe, as the end of the pipe (its worker died), or as SIGTERM. Exit
codes are 0: done; 130: stopped after saving what can be kept; 2: a mistake of the user or the machine; 1: a bug.
"""

import importlib
import io
import json
import os
import platform
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from infoflow import foundation

from ._stage import Checked, Message, Relay, Stage, fault
from ._starting import PRIMITIVES, Meter, stage_lock, use_threads

DONE, BUG, FAULT, STOPPED, ORPHANED = 0, 1, 2, 130, 137

_AGAIN = 5.0  # seconds until the request is repeated, since an interrupt inside a destructor is lost


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMessage:
    folder: str
    key: str
    notes: str  # folder below `work/.engine` in which this run of a graph records what is done
    entry: str  # `package.module:function`, which finds the stage of (run folder, key) and, if necessary, its needs
    threads: int = 1
    device: str | None = None  # visible GPUs (empty: none); None: those that the worker sees
    patience: float = 60.0  # seconds that a finished need may remain invisible, since shared file systems lag
    grace: float = 120.0  # seconds for saving once nobody waits for the process any more


def find_stage(entry: str, folder: str, key: str) -> Stage:
    module, _, function = entry.partition(":")
    return getattr(importlib.import_module(module), function)(folder, key)


def engine_folder(folder: Path | str) -> Path:
    """The subfolder of a run folder in which engines record what is done, for their workers to see."""
    return Path(folder) / "work" / ".engine"


def log_path(folder: Path | str, key: str) -> Path:
    return Path(folder) / "work" / "logs" / f"{_file_name(key)}.log"


def _file_name(key: str) -> str:
    harmless = key.replace("-", "").replace("_", "").isalnum() and key.isascii() and len(key) < 100
    return key if harmless else foundation.digest(key)


def run_stage(order: StageMessage, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the study, which sends the request
    with suppress(OSError, AttributeError):
        os.setsid()
    mouth = _Mouth(connection)
    try:
        with foundation.sigterm_interrupts():
            threading.Thread(target=_listen, args=(connection, order.grace), name="stop", daemon=True).start()
            code = _guarded(order, mouth)
    except KeyboardInterrupt:
        code = STOPPED
    with suppress(ValueError, OSError):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)


class _Mouth:
    """Sends messages through the pipe; if nobody reads them any more, the work continues without them."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def tell(self, message: Message) -> None:
        line = json.dumps(message, allow_nan=False).encode()
        with self._lock, suppress(OSError):
            self._connection.send_bytes(line)


def _listen(connection: Connection, grace: float) -> None:
    """Turn `stop` and the end of the pipe into a stop request; after the latter, end the process within `grace` s."""
    stopping = threading.Event()
    while True:
        try:
            connection.recv_bytes()
        except (EOFError, OSError):
            _request_stop(stopping)
            time.sleep(grace)
            os._exit(ORPHANED)
        _request_stop(stopping)


def _request_stop(stopping: threading.Event) -> None:
    if stopping.is_set():
        return
    stopping.set()

    def ask() -> None:
        while True:
            foundation.request_stop()
            time.sleep(_AGAIN)

    threading.Thread(target=ask, name="ask", daemon=True).start()


def _guarded(order: StageMessage, mouth: _Mouth) -> int:
    try:
        with foundation.disk_named(Path(order.folder)):
            _open_log(order)
            _set_environment(order)
            _work(order, mouth)
    except Exception as error:
        text = fault(error)
        mouth.tell({"event": "error", "text": text or f"{type(error).__name__}: {error}"})
        traceback.print_exc()
        return BUG if text is None else FAULT
    except KeyboardInterrupt as error:
        print(error or "Stopped.", file=sys.stderr)
        return STOPPED
    return DONE


def _open_log(order: StageMessage) -> None:
    path = log_path(order.folder, order.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    sys.stdout, sys.stderr = _log_stream(1), _log_stream(2)
    print(f"== {datetime.now(UTC).isoformat(timespec='seconds')}, process {os.getpid()}, {order.threads} threads")


class _Log(io.FileIO):
    """A log that accepts every line: on a full disk it is truncated, and the work itself reports the problem."""

    def write(self, data: Any, /) -> int:
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def _log_stream(descriptor: int) -> io.TextIOWrapper:
    buffer = io.BufferedWriter(_Log(descriptor, "w", closefd=False))
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _set_environment(order: StageMessage) -> None:
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PRIMITIVES)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if order.device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = order.device
    foundation.keep_freed_memory()
    use_threads(order.threads)


def _work(order: StageMessage, mouth: _Mouth) -> None:
    mouth.tell({"event": "start", "host": platform.node(), "process": os.getpid()})
    meter = Meter()
    with foundation.use_display(Relay(mouth.tell)):
        _await_folder(order)
        stage = find_stage(order.entry, order.folder, order.key)
        use_threads(order.threads)  # torch may have been imported just now
        _await_needs(stage, order)
        with stage_lock(engine_folder(order.folder) / "locks" / _file_name(order.key)):
            result = stored_result(order)  # another process may have run the stage while this one waited
            if result is None:
                facts = stage.run()
                device = os.environ.get("CUDA_VISIBLE_DEVICES", "") if "GPU" in stage.resources else ""
                usage = asdict(meter.usage(device, order.threads))
                result = {"event": "done", "facts": facts, "usage": usage}
                path = _result_path(order)
                if path.parent.is_dir():  # otherwise the study has ended without this stage
                    with foundation.atomic_write(path) as temporary:
                        temporary.write_text(json.dumps(result, allow_nan=False), encoding="utf-8")
    mouth.tell(result)


def _result_path(order: StageMessage) -> Path:
    return engine_folder(order.folder) / order.notes / f"{_file_name(order.key)}.json"


def stored_result(order: StageMessage) -> Message | None:
    """The stage's final message, if it finished during this run; its worker may be gone."""
    try:
        found = foundation.read_object(_result_path(order))
    except (OSError, ValueError):  # damaged: the stage is checked again
        return None
    whole = isinstance(found.get("facts"), dict) and isinstance(found.get("usage"), dict)
    return found if whole and found.get("event") == "done" else None


def _await_folder(order: StageMessage) -> None:
    deadline = time.monotonic() + order.patience
    while not (engine_folder(order.folder) / order.notes).is_dir():
        if time.monotonic() > deadline:
            raise foundation.UserError(
                f"{platform.node()} does not see the study's folder {order.folder}, or the study has ended. All "
                "machines must see it under the same path."
            )
        time.sleep(min(0.5, order.patience / 10))
        _refresh(engine_folder(order.folder))


def _await_needs(stage: Stage, order: StageMessage) -> None:
    """Wait until the results of finished needs are visible on this machine."""
    deadline = time.monotonic() + order.patience
    for key in stage.needs:
        need: Any = find_stage(order.entry, order.folder, key)
        while isinstance(need, Checked) and not need.is_done():
            if time.monotonic() > deadline:
                raise foundation.UserError(
                    f"The results of {need.label} are not in {order.folder} on {platform.node()}, "
                    f"{order.patience:.0f} s after it ended. Check that all machines share that folder."
                )
            time.sleep(min(0.5, order.patience / 10))
            _refresh(Path(order.folder))


def _refresh(folder: Path, depth: int = 3) -> None:
    """List the folders, which refreshes the cache of a network file system."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if depth and entry.is_dir(follow_symlinks=False):
                _refresh(Path(entry.path), depth - 1)
