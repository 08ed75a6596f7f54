"""Helpers of the engine on Dask: values of `--cluster`, notes that workers look for, and the state of a graph."""

import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, as_written, current_display, read_object, writable

from ._child import engine_folder
from ._stage import Ending, Event, Message, Stage, Tally, Usage, as_event
from ._supervisor import StageFailed, Stopped


def parse_listen(where: str) -> tuple[str, int]:
    """Host and port of `listen[:HOST[:PORT]]`; defaults: the address of this machine's name, and any port."""
    parts = re.fullmatch(r"listen(?::(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::(\d{1,5}))?)?", where)
    if not parts or int(parts[2] or 0) > 65535:
        raise UserError(f"--cluster must be listen, listen:HOST or listen:HOST:PORT. Got {where}.")
    if parts[1]:
        host = parts[1].strip("[]")
        if host in ("0.0.0.0", "::", "*"):
            raise UserError("--cluster listen needs a specific address of this machine, not all of them: name one.")
        return host, int(parts[2] or 0)
    try:
        host = socket.gethostbyname(socket.gethostname())
    except OSError:
        raise UserError(
            f"The host name of this machine, {socket.gethostname()}, has no address. Name one: --cluster listen:HOST"
        ) from None
    if host.startswith("127."):
        current_display().note(
            f"{socket.gethostname()} resolves to {host}, which only this machine can reach. For other machines name an "
            "address: --cluster listen:HOST"
        )
    return host, 0


def require_free(host: str, port: int) -> None:
    """Refuse an address that is not this machine's, or a port on which another program listens."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if os.name == "posix":  # on Windows every port would look free
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise UserError(
            f"--cluster listen: cannot listen at {host}:{port} ({error.strerror or error}). Name an address of "
            "this machine: listen:HOST:PORT"
        ) from None


_CLUSTER_FORMS = "--cluster must be listen, an address such as tls://HOST:8786, or a scheduler file."


def address_in(file: str) -> str:
    try:
        address = read_object(Path(file))["address"]
        if isinstance(address, str):
            return address
        raise ValueError("address must be text")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{_CLUSTER_FORMS} Got {as_written(file)}, which is not a readable scheduler file.") from None


def require_private(address: str, insecure: bool) -> None:
    """Refuse an address without a valid port, or a connection that is not encrypted."""
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    host = host.strip("[]")
    if scheme != "inproc" and not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65535):
        raise UserError(f"{_CLUSTER_FORMS} Got {as_written(address)}, whose port is not a number in 0..65535.")
    if insecure or scheme in ("tls", "wss", "inproc") or host in ("127.0.0.1", "::1", "localhost"):
        return
    raise UserError(
        f"{address} is not encrypted: anyone who reaches that port can run code as you. Use tls://, or --insecure "
        "in a private network."
    )


# The folder `work/.engine/NONCE` of a run, by which a worker recognises that it sees the study's files.
LOCKS = "locks"


class RunNotes:
    """Final messages of the stages in one run of the engine; removed when the engine closes."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = str(Path(folder).absolute())
        self.nonce = secrets.token_hex(8)
        self._runs = 0

    def open(self) -> None:
        """Create the folder and remove leftovers of killed engines; only one engine works in a run folder at a time."""
        home = engine_folder(self.folder)
        with writable(home):
            (home / LOCKS).mkdir(parents=True, exist_ok=True)
            for left in home.iterdir():
                if left.is_dir() and left.name != LOCKS:
                    shutil.rmtree(left, ignore_errors=True)
            (home / self.nonce).mkdir()

    def new_run(self) -> str:
        """Create a folder, below `work/.engine`, for one more graph, and return its name."""
        self._runs += 1
        name = f"{self.nonce}/{self._runs}"
        (engine_folder(self.folder) / name).mkdir()
        return name

    def close(self) -> None:
        shutil.rmtree(engine_folder(self.folder) / self.nonce, ignore_errors=True)


PATIENCE = 30.0
"""Seconds without a worker, or without an answer, until that is reported."""
WATCH = 5.0
"""Seconds between checks of the workers."""
_LATE = 60.0  # seconds that a stage's last messages may take, since they arrive on another path than its ending
GONE = "Lost the cluster's scheduler. Finished work is kept; run the same command to continue."


@dataclass(kw_only=True, slots=True, eq=False)
class Following:
    stages: Sequence[Stage]
    futures: Mapping[str, Any]  # Dask's
    on_event: Callable[[Event], None]
    endings: dict[str, Ending] = field(default_factory=dict)
    hopeless: bool = False
    running: set[str] = field(default_factory=set)
    next_watch: float = field(default_factory=lambda: time.monotonic() + WATCH)
    next_note: float = field(default_factory=lambda: time.monotonic() + PATIENCE)
    _results: dict[str, Message] = field(default_factory=dict)
    _finished: dict[str, float] = field(default_factory=dict)
    _tally: Tally = field(default_factory=Tally)

    def is_over(self) -> bool:
        return self.hopeless or len(self.endings) == len(self.stages)

    def hear(self, key: str, message: Message) -> None:
        if message["event"] == "done":
            self._results[key] = message
        elif key not in self.endings:
            self.running.add(key)
            self.on_event(as_event(key, message))

    def ended(self) -> list[Stage]:
        return [stage for stage in self.stages if stage.key not in self.endings and not self._is_open(stage.key)]

    def note(self, ended: Sequence[Stage]) -> None:
        """Record and report how these stages ended; skip the rest if their failures make the graph hopeless."""
        for stage in ended:
            self._end(stage, self._ending(stage))
        if self.hopeless:
            for stage in self.stages:
                if stage.key not in self.endings:
                    self._end(stage, Ending(state="stopped"))

    def _is_open(self, key: str) -> bool:
        """Whether the stage runs or waits, or its final message has not arrived yet."""
        status = self.futures[key].status
        if status == "lost":  # its worker died afterwards; the result is looked up on another one
            return key not in self._results
        if status != "finished" or key in self._results:
            return status == "pending"
        since = self._finished.setdefault(key, time.monotonic())
        return time.monotonic() - since < _LATE

    def _end(self, stage: Stage, ending: Ending) -> None:
        self.endings[stage.key] = ending
        self.running.discard(stage.key)
        self.on_event(Event(kind="end", stage=stage.key, ending=ending))

    def _ending(self, stage: Stage) -> Ending:
        future = self.futures[stage.key]
        if future.status in ("finished", "lost"):
            if stage.key not in self._results:  # its last messages are lost, its files exist
                return Ending(state="done")
            result = self._results[stage.key]
            return Ending(state="done", facts=result["facts"], usage=Usage(**result["usage"]))
        if future.status != "error":
            raise UserError(GONE)
        error = future.exception()
        if isinstance(error, Stopped):
            return Ending(state="stopped")
        if blame := self._blame(stage, error):
            return Ending(state="skipped", because=blame)
        if not isinstance(error, StageFailed):
            error = StageFailed(stage.key, *[f"{type(error).__name__}: {error}"] * 2, "")
        self.hopeless |= self._tally.is_hopeless(error.reason)
        return Ending(state="failed", text=error.text, log=error.log)

    def _blame(self, stage: Stage, error: BaseException | None) -> str:
        """Key of the failed stage that this one needs, or ""."""
        if isinstance(error, StageFailed):
            return error.key if error.key != stage.key else ""
        before = [self.endings[need] for need in stage.needs if need in self.endings]
        blamed = [need for need in stage.needs if need in self.endings and self.endings[need].state == "failed"]
        return next((ending.because for ending in before if ending.because), next(iter(blamed), ""))
