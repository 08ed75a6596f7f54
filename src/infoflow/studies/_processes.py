"""Several jobs at a time on one machine, each in a process of its own with its share of the threads.

Small models use few threads well: two processes of one thread train two models in little more than the time that one
process of two threads needs for one.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infoflow.foundation import Progress, UserError, current_display, thread_budget

from ._jobs import Job, job_cost, requirement


class JobProgress:
    """One bar for many jobs: how much of the estimated work is done, and what runs now."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._shares: dict[Job, float] = {}
        self._running: dict[Job, str] = {}
        self._lock = threading.Lock()

    def update(self, job: Job, share: float, details: str) -> None:
        """`share` (0..1) of the job is done."""
        with self._lock:
            self._running[job] = details
            self._advance(job, share)

    def finish(self, job: Job) -> None:
        """The job is done."""
        with self._lock:
            self._running.pop(job, None)
            self._advance(job, 1.0)

    def _advance(self, job: Job, share: float) -> None:
        gained = max(share - self._shares.get(job, 0.0), 0.0)
        self._shares[job] = self._shares.get(job, 0.0) + gained
        running = "; ".join(f"{job.label} {details}" for job, details in self._running.items())
        self._progress.advance(gained * job_cost(job), now=running or "next job")


_PRIMITIVES = "64"
"""oneDNN keeps a compiled primitive per shape, 1,024 by default: with batches of all lengths a small translation model
grew to 2.3 GB in twelve minutes. With 16 it stayed at 0.9 GB, at the same speed."""


_KILLED = 9  # Windows has no name for it


@dataclass(kw_only=True, slots=True, eq=False)
class _Worker:
    """A running job and what its process has said."""

    job: Job
    process: subprocess.Popen[str]
    reader: threading.Thread | None = None
    error: str = ""
    output: list[str] = field(default_factory=list)


def run_in_processes(jobs: Sequence[Job], folder: Path, num_processes: int, progress: JobProgress) -> None:
    """Do `jobs` in the run folder, `num_processes` at a time, each after what it requires.

    Raises:
        UserError: A job failed by the user's mistake; the others are stopped, resumable.
        RuntimeError: A job's process died.
    """
    waiting, running, done = list(jobs), list[_Worker](), set[Job]()
    threads = max(1, thread_budget() // num_processes)
    finished = threading.Condition()
    try:
        while waiting or running:
            while len(running) < num_processes and (job := _next(waiting, done, jobs)):
                waiting.remove(job)
                running.append(_start(job, folder, threads, finished, progress))
            with finished:
                finished.wait(timeout=0.5)
            for worker in [worker for worker in running if worker.process.poll() is not None]:
                running.remove(worker)
                _check(worker)
                done.add(worker.job)
                progress.finish(worker.job)
    finally:
        _stop(running)


def _next(waiting: Sequence[Job], done: set[Job], jobs: Sequence[Job]) -> Job | None:
    """The longest job whose requirement is met (or was met before this run), so that processes end together."""
    ready = [job for job in waiting if requirement(job) in done or requirement(job) not in jobs]
    return max(ready, key=job_cost, default=None)


def _start(job: Job, folder: Path, threads: int, finished: threading.Condition, progress: JobProgress) -> _Worker:
    command = [sys.executable, "-m", "infoflow.studies", str(folder), job.write()]
    environment = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": _PRIMITIVES, **os.environ}
    environment |= {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}  # the first one tells it that this process lives
    process = subprocess.Popen(command, env=environment, **pipes, encoding="utf-8", errors="replace")
    worker = _Worker(job=job, process=process)
    assert process.stderr is not None
    worker.reader = threading.Thread(target=_listen, args=(worker, process.stderr, finished, progress), daemon=True)
    worker.reader.start()
    return worker


def _listen(worker: _Worker, lines: Iterable[str], finished: threading.Condition, progress: JobProgress) -> None:
    """Pass a worker's events on to this process's display."""
    for line in lines:
        try:
            event = json.loads(line)
            tell = _TELLERS[event["event"]]
        except (json.JSONDecodeError, KeyError, TypeError):
            worker.output.append(line)
            continue
        tell(worker, event, progress)
    worker.process.wait()
    with finished:
        finished.notify()


def _tell_progress(worker: _Worker, event: dict, progress: JobProgress) -> None:
    share = event["done"] / event["total"] if event["total"] else 0.0
    loss = f", loss {event['loss']}" if "loss" in event else ""
    of_whole = share if worker.job.kind == "train" and event["label"].startswith("train") else 0.0
    progress.update(worker.job, of_whole, f"{100 * share:.0f} %{loss}")


def _tell_note(worker: _Worker, event: dict, progress: JobProgress) -> None:
    current_display().note(f"{worker.job.label}: {event['text']}")


def _tell_warning(worker: _Worker, event: dict, progress: JobProgress) -> None:
    current_display().warn(f"{worker.job.label}: {event['text']}")


def _tell_error(worker: _Worker, event: dict, progress: JobProgress) -> None:
    worker.error = event["text"]


_TELLERS: dict[str, Callable[[_Worker, dict, JobProgress], None]] = {
    "progress": _tell_progress,
    "note": _tell_note,
    "warning": _tell_warning,
    "error": _tell_error,
}


def _check(worker: _Worker) -> None:
    assert worker.reader is not None
    worker.reader.join()
    code = worker.process.returncode
    if code == 0:
        return
    if worker.error:
        raise UserError(f"{worker.job.label}: {worker.error}")
    if code in (130, -signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    said = "".join(worker.output[-40:])
    if code == -_KILLED:
        raise UserError(
            f"{worker.job.label} was killed (signal {_KILLED}): by the system, which had too little memory, or by "
            "hand.\nWhat is finished is kept, and the same command continues: give it fewer --processes, or lower "
            "training.micro_tokens or analysis.tokens_per_batch with --set."
        )
    if code < 0:
        raise UserError(
            f"{worker.job.label} was ended by the system ({_signal_name(-code)}): a library ran out of memory, disk or "
            f"threads, or failed.\nGive the same command again with fewer --processes, or --threads 1. It said:\n{said}"
        )
    raise RuntimeError(f"{worker.job.label} ended with code {code}:\n{said}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _stop(running: Sequence[_Worker]) -> None:
    """Ask the workers to save and stop, and wait for them."""
    for worker in running:
        worker.process.send_signal(signal.SIGTERM)
    for worker in running:
        worker.process.wait()
