"""The process that runs one stage. It can always be asked to save and stop, and it never outlives who waits for it.

It is asked by the message `stop` through its pipe, by the pipe's end (its worker died), or by SIGTERM. It ends with 0:
done; 130: stopped, what can be kept is saved; 2: a mistake of the user or the machine; 1: a bug.
"""

import importlib
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

from infoflow.foundation import (
    UserError,
    atomic_write,
    digest,
    keep_freed_memory,
    request_stop,
    sigterm_interrupts,
    use_display,
)

from ._failures import fault
from ._relay import Message, Relay
from ._stage import Checked, Stage
from ._stage_lock import stage_lock
from ._starting import PRIMITIVES
from ._usage import Meter, use_threads

DONE, BUG, FAULT, STOPPED, ORPHANED = 0, 1, 2, 130, 137

_AGAIN = 5.0
"""Seconds until it is asked again: an interrupt inside a destructor is lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMessage:
    """What travels to the process."""

    folder: str
    key: str
    notes: str
    """Folder below `work/.engine` where this run of a graph notes what is done."""
    entry: str
    """`package.module:function`, which finds the stage of (run folder, key); it may be asked for its needs too."""
    threads: int = 1
    device: str | None = None
    """GPUs that it may see (empty: none); None: those that the worker sees."""
    patience: float = 60.0
    """Seconds that a finished need may stay unseen: shared file systems are late."""
    grace: float = 120.0
    """Seconds to save in once nobody waits for it any more."""


def find_stage(entry: str, folder: str, key: str) -> Stage:
    """The stage of that key, as the function `entry` finds it."""
    module, _, function = entry.partition(":")
    return getattr(importlib.import_module(module), function)(folder, key)


def engine_folder(folder: Path | str) -> Path:
    """What engines note in a run folder for each other."""
    return Path(folder) / "work" / ".engine"


def log_path(folder: Path | str, key: str) -> Path:
    """The file with all that a stage's processes have printed."""
    return Path(folder) / "work" / "logs" / f"{_file_name(key)}.log"


def _file_name(key: str) -> str:
    harmless = key.replace("-", "").replace("_", "").isalnum() and key.isascii() and len(key) < 100
    return key if harmless else digest(key)


def run_stage(order: StageMessage, connection: Connection) -> None:
    """The process's whole life."""
    _detach()
    mouth = _Mouth(connection)
    try:
        with sigterm_interrupts():
            threading.Thread(target=_listen, args=(connection, order.grace), name="stop", daemon=True).start()
            code = _guarded(order, mouth)
    except KeyboardInterrupt:
        code = STOPPED
    with suppress(ValueError, OSError):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)


def _detach() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the study, which asks
    with suppress(OSError, AttributeError):
        os.setsid()


class _Mouth:
    """Tells through the pipe; where nobody listens any more, the work goes on without."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def tell(self, message: Message) -> None:
        line = json.dumps(message, allow_nan=False).encode()
        with self._lock, suppress(OSError):
            self._connection.send_bytes(line)


def _listen(connection: Connection, grace: float) -> None:
    """Turn `stop` and the pipe's end into a request to stop; after the latter, end the process in any case."""
    asked = threading.Event()
    while True:
        try:
            connection.recv_bytes()
        except (EOFError, OSError):
            _ask(asked)
            time.sleep(grace)
            os._exit(ORPHANED)
        _ask(asked)


def _ask(asked: threading.Event) -> None:
    if asked.is_set():
        return
    asked.set()

    def ask() -> None:
        while True:
            request_stop()
            time.sleep(_AGAIN)

    threading.Thread(target=ask, name="ask", daemon=True).start()


def _guarded(order: StageMessage, mouth: _Mouth) -> int:
    try:
        _open_log(order)
        _set_environment(order)
        _work(order, mouth)
    except Exception as error:
        traceback.print_exc()
        text = fault(error)
        mouth.tell({"event": "error", "text": text or f"{type(error).__name__}: {error}"})
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
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    print(f"== {datetime.now(UTC).isoformat(timespec='seconds')}, process {os.getpid()}, {order.threads} threads")


def _set_environment(order: StageMessage) -> None:
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PRIMITIVES)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if order.device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = order.device
    keep_freed_memory()
    use_threads(order.threads)


def _work(order: StageMessage, mouth: _Mouth) -> None:
    mouth.tell({"event": "start", "host": platform.node(), "process": os.getpid()})
    meter = Meter()
    with use_display(Relay(mouth.tell)):
        _await_folder(order)
        stage = find_stage(order.entry, order.folder, order.key)
        use_threads(order.threads)  # torch may have been imported just now
        _await_needs(stage, order)
        with stage_lock(engine_folder(order.folder) / "locks" / _file_name(order.key)):
            result = stored_result(order)  # another process may have done it while this one waited
            if result is None:
                facts = stage.run()
                device = os.environ.get("CUDA_VISIBLE_DEVICES", "") if "GPU" in stage.resources else ""
                usage = asdict(meter.usage(device, order.threads))
                result = {"event": "done", "facts": facts, "usage": usage}
                _store_result(order, result)
    mouth.tell(result)


def _result_path(order: StageMessage) -> Path:
    return engine_folder(order.folder) / order.notes / f"{_file_name(order.key)}.json"


def stored_result(order: StageMessage) -> Message | None:
    """What the stage told at its end, if it has ended in this run of the engine: its worker may have died since."""
    try:
        return json.loads(_result_path(order).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _store_result(order: StageMessage, result: Message) -> None:
    path = _result_path(order)
    if path.parent.is_dir():  # else the study has ended without this stage
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(result, allow_nan=False), encoding="utf-8")


def _await_folder(order: StageMessage) -> None:
    """Wait until the run's folder is seen here.

    Raises:
        UserError: It is not.
    """
    deadline = time.monotonic() + order.patience
    while not (engine_folder(order.folder) / order.notes).is_dir():
        if time.monotonic() > deadline:
            raise UserError(
                f"{platform.node()} does not see the study's folder {order.folder}, or the study has ended. All "
                "machines must see it under the same path."
            )
        time.sleep(min(0.5, order.patience / 10))
        _refresh(engine_folder(order.folder))


def _await_needs(stage: Stage, order: StageMessage) -> None:
    """Wait until the results of finished needs are seen here.

    Raises:
        UserError: One is not.
    """
    deadline = time.monotonic() + order.patience
    for key in stage.needs:
        need: Any = find_stage(order.entry, order.folder, key)
        while isinstance(need, Checked) and not need.is_done():
            if time.monotonic() > deadline:
                raise UserError(
                    f"The results of {need.label} are not in {order.folder} on {platform.node()}, "
                    f"{order.patience:.0f} s after it has ended. See whether all machines share that folder."
                )
            time.sleep(min(0.5, order.patience / 10))
            _refresh(Path(order.folder))


def _refresh(folder: Path, depth: int = 3) -> None:
    """List the folders: this renews what a network file system remembers of them."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if depth and entry.is_dir(follow_symlinks=False):
                _refresh(Path(entry.path), depth - 1)
