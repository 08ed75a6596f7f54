"""One process at a stage: its lock, its threads, and the resources that it uses."""

import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from infoflow.foundation import current_display, lock_file, processor, read_object, set_threads

from ._stage import Usage

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
            if _is_still(path, descriptor):  # otherwise the previous holder has removed the file
                os.write(descriptor, _holder().encode())
                yield waited
                with suppress(PermissionError):  # Windows keeps an open file, which the next process takes
                    path.unlink(missing_ok=True)  # while it is held: nobody else holds a file of this name
                return
        finally:
            os.close(descriptor)


def _flock(descriptor: int, path: Path) -> tuple[bool, bool]:
    """(whether another process held it, whether locks exist at all)."""
    try:
        return False, lock_file(descriptor)
    except BlockingIOError:
        _say(path)
        return True, lock_file(descriptor, wait=True)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


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
    """Whether its holder is silent by the file system's clock, since the machines' clocks differ."""
    probe = path.with_suffix(f".{platform.node()}-{os.getpid()}")
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime > _STALE
    except FileNotFoundError:
        return False
    finally:
        probe.unlink(missing_ok=True)


# Resources that a stage uses, and the threads it may use.


class Meter:
    """Measures the resources that this process uses from the meter's creation on."""

    def __init__(self) -> None:
        self._start, self._cpu = time.monotonic(), _cpu_seconds()

    def usage(self, device: str, threads: int) -> Usage:
        return Usage(
            seconds=round(time.monotonic() - self._start, 3),
            cpu_seconds=round(_cpu_seconds() - self._cpu, 3),
            peak_memory=_peak_memory(),
            host=platform.node(),
            processor=processor(),
            device=device or "cpu",
            threads=_threads_in_use(threads),
        )


def use_threads(threads: int) -> None:
    """Give torch and BLAS that many threads; a later import of torch finds the number in the environment."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if "torch" in sys.modules:
        set_threads(threads)


def _threads_in_use(threads: int) -> int:
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else threads


def _cpu_seconds() -> float:
    """CPU seconds of this process and its ended children."""
    return time.process_time() + sum(os.times()[2:4])  # the latter in hundredths


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
