"""Detects dead processes within minutes by a heartbeat, while a collective call would wait for hours."""

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn

_INTERVAL = 5.0  # seconds between two beats
_SILENCE = 120.0  # seconds after which a process counts as lost: longer than any measure holds Python's lock
_LOST = 2  # exit code


class Heartbeat:
    """A thread that counts in the launcher's store, and ends this process if another one stops counting.

    A stopped process (SIGSTOP, a frozen machine, a cut network) keeps its connections, so a collective call waits for
    it until its timeout and cannot be interrupted. Therefore this process is ended, and the launcher ends the others.
    Finished results are kept.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store.clone() if hasattr(store, "clone") else store  # its own client: one call at a time
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
            if now - before > 4 * _INTERVAL:  # this process was stopped itself: count the others from now
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
                "What is finished is kept; the same command continues.",
                file=sys.stderr,
                flush=True,
            )
        os._exit(_LOST)


def _key(what: str, rank: int) -> str:
    return f"infoflow/{what}/{rank}"
