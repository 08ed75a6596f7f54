"""Several processes started by `torchrun` or `accelerate launch`: ranks, and exchange of results."""

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any, NoReturn, TypeVar

import torch.distributed as dist

from infoflow.foundation import UserError, launched

T = TypeVar("T")

_MEETING = timedelta(minutes=5)
_PATIENCE = timedelta(hours=12)  # one process may compute a slow measure while the others wait (30 minutes by default)
_INTERVAL = 5.0  # seconds between two beats
_SILENCE = 120.0  # seconds after which a process counts as lost: longer than any measure holds Python's lock
_LOST = 2  # exit code


def processes() -> tuple[int, int]:
    """(rank, number of processes); joins the process group (gloo) that the launcher's environment describes.

    Raises:
        UserError: The environment is invalid, or some processes never joined.
    """
    if not dist.is_available():
        return 0, 1
    if not dist.is_initialized():
        rank, size = launched()
        if size == 1:
            return 0, 1
        _join(rank, size)
    _watch()
    return dist.get_rank(), dist.get_world_size()


def _join(rank: int, size: int) -> None:
    """Meet the other processes in the launcher's store within minutes, then form the group, whose timeout is hours."""
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=_MEETING))
        store.set(f"infoflow/here/{rank}", "1")
        store.wait([f"infoflow/here/{other}" for other in range(size)], _MEETING)
    except (RuntimeError, ValueError, OSError) as error:  # torch's DistError is a RuntimeError
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"The {size} processes of this run must meet at {where} within {_MEETING.seconds // 60} minutes. Process "
            f"{rank} did not meet them all: {reason}.\nStart them together with torchrun, and check address and port."
        ) from None
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=_PATIENCE)


@cache
def _watch() -> None:
    """Detect processes that stop, and leave the group when the interpreter ends."""
    heartbeat = None
    if dist.get_world_size() > 1:
        store = dist.distributed_c10d._get_default_store()
        heartbeat = Heartbeat(store, dist.get_rank(), dist.get_world_size())
        heartbeat.start()
    atexit.register(_leave, heartbeat)


class Heartbeat:
    """A thread that counts in the launcher's store, and ends this process if another one stops counting.

    A stopped process (SIGSTOP, a frozen machine, a cut network) keeps its connections, so a collective call waits for
    it until its timeout and cannot be interrupted. Therefore this process is ended, and the launcher ends the others.
    Finished results are kept.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store.clone() if hasattr(store, "clone") else store  # a client takes one call at a time
        self._rank, self._size = rank, size
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._ending = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """Announce that this process is done, not lost."""
        self._ending.set()
        self._thread.join(timeout=_INTERVAL)
        with suppress(RuntimeError):  # the store is gone with its process
            self._store.add(_key("left", self._rank), 1)

    def _run(self) -> None:
        counts, heard = dict[int, int](), dict[int, float]()
        before = contact = time.monotonic()
        while not self._ending.wait(_INTERVAL):
            now = time.monotonic()
            if now - before > 4 * _INTERVAL:  # this process itself was stopped, so restart the others' clocks
                contact, heard = now, dict.fromkeys(heard, now)
            before = now
            try:
                self._listen(counts, heard, now)
                contact = now
            except RuntimeError:
                if now - contact > _SILENCE:
                    self._end("The launcher's store", [])
            lost = [rank for rank, when in heard.items() if now - when > _SILENCE]
            if lost:
                names = f"Process {lost[0]}" if len(lost) == 1 else f"Processes {', '.join(map(str, lost))}"
                self._end(f"{names} of {self._size} (counted from 0)", lost)

    def _listen(self, counts: dict[int, int], heard: dict[int, float], now: float) -> None:
        self._store.add(_key("beat", self._rank), 1)
        for rank in range(self._size):
            if rank == self._rank:
                continue
            count = self._store.add(_key("beat", rank), 0)
            if count != counts.get(rank) or self._store.add(_key("left", rank), 0):
                counts[rank], heard[rank] = count, now

    def _end(self, who: str, lost: list[int]) -> NoReturn:
        alive = [rank for rank in range(self._size) if rank not in lost]
        if self._rank == alive[0] or not lost:
            print(
                f"{who} did not answer for {_SILENCE:.0f} seconds: stopped, or out of reach. The run ends here. "
                "What is finished is kept; run the same command to continue.",
                file=sys.stderr,
                flush=True,
            )
        os._exit(_LOST)


def _leave(heartbeat: Heartbeat | None) -> None:
    """Leave the process group, whose threads may otherwise abort the process when the interpreter ends."""
    if heartbeat is not None:
        heartbeat.leave()
    if dist.is_initialized():
        dist.destroy_process_group()


def exchange(state: Any) -> list[Any]:
    """Gather the states of all processes on every process, in rank order."""
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, state)
    return states


def is_first() -> bool:
    """Whether this process writes the common results."""
    return processes()[0] == 0


def agree(value: Any) -> Any:
    """Return the first process's `value` on every process."""
    if processes()[1] == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def wait_for_all() -> None:
    """Return once every process has called this."""
    if processes()[1] > 1:
        dist.barrier()


def first_then_others(load: Callable[[], T]) -> T:
    """Call `load()` on every process, on the first one before the others, so that they find its cache."""
    if is_first():
        loaded = load()
    wait_for_all()
    if not is_first():
        loaded = load()
    return loaded


def _key(what: str, rank: int) -> str:
    return f"infoflow/{what}/{rank}"
