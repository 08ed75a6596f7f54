"""The engine on Dask: the whole graph is submitted at once, and each task supervises the process of one stage."""

import logging
import queue
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import dask
from distributed import Client, Future, Scheduler, SpecCluster, Worker

from infoflow.foundation import UserError

from ._child import Order
from ._failures import Tally
from ._relay import Message, as_event
from ._run_notes import RunNotes
from ._stage import Ending, Event, Stage, Usage, in_order, path_lengths
from ._supervisor import StageFailed, Stopped
from ._worker import StagePlugin, on_worker, plugin_name, supervise

_LOOK = 0.05
"""Seconds between looks at what has ended."""
_GRACE = 120.0
"""Seconds that running stages have to save in."""

_SETTINGS = {
    "distributed.scheduler.allowed-failures": 100,  # workers that die are pre-empted machines
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.diagnostics.nvml": False,
}


@contextmanager
def own_settings() -> Iterator[None]:
    """Dask's defaults and ours: the user's configuration and `DASK_*` variables are for clusters of their own."""
    with (
        dask.config.set(dask.config.merge(*dask.config.defaults)),
        dask.config.set(_SETTINGS),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Couldn't detect a suitable IP address")  # without a network
        yield


class Place(Protocol):
    """Where the tasks run."""

    def open(self) -> Client: ...

    def close(self, client: Client) -> None: ...

    def missing_worker(self, waiting: int) -> str:
        """What to tell while nobody works."""
        ...


@dataclass(kw_only=True, slots=True, eq=False)
class Here:
    """Scheduler and worker inside this process; nothing listens."""

    jobs: int
    devices: Sequence[str] = ()
    _cluster: SpecCluster | None = None

    def open(self) -> Client:
        port = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}  # None would open one on all interfaces
        resources = {"GPU": len(self.devices)} if self.devices else {}
        options = {"protocol": "inproc", "nthreads": self.jobs, "memory_limit": 0, "resources": resources, **port}
        with own_settings():
            self._cluster = SpecCluster(
                scheduler={"cls": Scheduler, "options": {"protocol": "inproc://", **port}},
                workers={0: {"cls": Worker, "options": options}},
                silence_logs=logging.CRITICAL,
                name=f"infoflow-{time.time_ns()}",
            )
            self._cluster.sync(close_http, self._cluster)
            return Client(self._cluster, set_as_default=False)

    def close(self, client: Client) -> None:
        client.close()
        assert self._cluster is not None
        self._cluster.close()

    def missing_worker(self, waiting: int) -> str:
        return f"{waiting} stages wait for what this machine does not have: see their resources."


async def close_http(cluster: SpecCluster) -> None:
    """Close the ports of Dask's web pages, which it opens in any case."""
    for node in (cluster.scheduler, *cluster.workers.values()):
        node.http_server.stop()


class DaskEngine:
    """Runs graphs in one place; see `Engine`."""

    def __init__(
        self, place: Place, folder: str, entry: str, preload: Sequence[str], devices: Sequence[str] | None = None
    ) -> None:
        self._place, self._entry = place, entry
        self._notes = RunNotes(folder)
        self._plugin = StagePlugin(self._notes.nonce, preload, devices)
        self._heard: queue.SimpleQueue[tuple[str, Message]] = queue.SimpleQueue()

    def __enter__(self) -> "DaskEngine":
        self._notes.open()
        try:
            self._client = self._place.open()
            self._client.register_plugin(self._plugin)
            topic = plugin_name(self._notes.nonce)
            self._client.subscribe_topic(topic, lambda event: self._heard.put(tuple(event[1])))
        except BaseException:
            self._notes.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            with suppress(Exception):  # the scheduler may be gone
                self._everywhere("kill")
                self._client.unregister_worker_plugin(plugin_name(self._notes.nonce))
            self._place.close(self._client)
        finally:
            self._notes.close()

    def run(self, graph: Sequence[Stage], on_event: Callable[[Event], None]) -> dict[str, Ending]:
        """See `Engine.run`."""
        stages = in_order(graph)
        run = _Run(stages=stages, futures=self._submit(stages), on_event=on_event)
        try:
            while not run.is_over():
                time.sleep(_LOOK)
                self._pass_on(run)
                run.look()
        except BaseException:
            on_event(Event(kind="note", text="Stopping: running stages save. Once more stops at once."))
            self._stop(run)
            raise
        if run.hopeless:
            self._stop(run)
        self._pass_on(run)
        return run.endings

    def _submit(self, stages: Sequence[Stage]) -> dict[str, Future]:
        lengths = path_lengths(stages)
        futures: dict[str, Future] = {}
        for stage in stages:
            futures[stage.key] = self._client.submit(
                supervise,
                self._notes.nonce,
                self._order(stage),
                float(stage.resources.get("GPU", 0)),
                *(futures[need] for need in stage.needs if need in futures),
                key=f"{self._notes.nonce}/{stage.key}",
                priority=lengths[stage.key],
                resources=dict(stage.resources) or None,
                retries=0,
                pure=False,
            )
        return futures

    def _order(self, stage: Stage) -> Order:
        folder, nonce = self._notes.folder, self._notes.nonce
        return Order(folder=folder, key=stage.key, nonce=nonce, entry=self._entry, threads=stage.threads)

    def _pass_on(self, run: "_Run") -> None:
        """Tell what the stages have told, in the calling thread."""
        with suppress(queue.Empty):
            while True:
                run.hear(*self._heard.get_nowait())

    def _stop(self, run: "_Run") -> None:
        """Let running stages save, for two minutes at most; a second Ctrl-C ends them at once."""
        try:
            self._everywhere("stop")
            deadline = time.monotonic() + _GRACE
            while not all(self._everywhere("is_idle")) and time.monotonic() < deadline:
                time.sleep(_LOOK)
        finally:
            self._everywhere("kill")
            with suppress(Exception):  # the scheduler may be gone
                self._client.cancel(list(run.futures.values()))

    def _everywhere(self, action: str) -> list[bool]:
        """Do it on each worker that answers."""
        try:
            return list(self._client.run(on_worker, self._notes.nonce, action, on_error="ignore").values())
        except (OSError, RuntimeError, TimeoutError, ValueError):
            return []


@dataclass(kw_only=True, slots=True, eq=False)
class _Run:
    """One graph while it runs."""

    stages: Sequence[Stage]
    futures: dict[str, Future]
    on_event: Callable[[Event], None]
    endings: dict[str, Ending] = field(default_factory=dict)
    hopeless: bool = False
    _results: dict[str, Message] = field(default_factory=dict)
    _tally: Tally = field(default_factory=Tally)

    def is_over(self) -> bool:
        return self.hopeless or len(self.endings) == len(self.stages)

    def hear(self, key: str, message: Message) -> None:
        if message["event"] == "done":
            self._results[key] = message
        elif key not in self.endings:
            self.on_event(as_event(key, message))

    def look(self) -> None:
        """Note which stages have ended."""
        for stage in self.stages:
            if stage.key in self.endings or self.futures[stage.key].status == "pending":
                continue
            self._end(stage, self._ending(stage))
        if self.hopeless:
            for stage in self.stages:
                if stage.key not in self.endings:
                    self._end(stage, Ending(state="stopped"))

    def _end(self, stage: Stage, ending: Ending) -> None:
        self.endings[stage.key] = ending
        self.on_event(Event(kind="end", stage=stage.key, ending=ending))

    def _ending(self, stage: Stage) -> Ending:
        future = self.futures[stage.key]
        if future.status == "finished":
            result = self._results[stage.key]
            return Ending(state="done", facts=result["facts"], usage=Usage(**result["usage"]))
        if future.status != "error":
            raise UserError("The scheduler is gone. What is finished is kept, and the same command goes on.")
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
        """The failed stage that this one needs, or nothing."""
        if isinstance(error, StageFailed):
            return error.key if error.key != stage.key else ""
        before = [self.endings[need] for need in stage.needs if need in self.endings]
        blamed = [need for need in stage.needs if need in self.endings and self.endings[need].state == "failed"]
        return next((ending.because for ending in before if ending.because), next(iter(blamed), ""))
