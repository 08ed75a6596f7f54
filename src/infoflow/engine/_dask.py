"""The engine on Dask: the whole graph is submitted at once, and each task supervises the process of one stage."""

import asyncio
import logging
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future, Scheduler, SpecCluster, Worker
from distributed.comm import connect
from distributed.security import Security

from infoflow.foundation import UserError

from ._child import StageMessage
from ._invitation import Invitation, Versions, self_signed
from ._stage import Ending, Event, Message, Stage, in_order, path_lengths
from ._where import GONE, PATIENCE, WATCH, Following, RunNotes, address_in, parse_listen, require_free, require_private
from ._worker import StagePlugin, on_worker, own_settings, plugin_name, security_of, supervise, visible_devices

_LOOK = 0.05  # seconds between checks for ended stages
_LOG = logging.getLogger("distributed.client")
_GRACE = 120.0  # seconds that running stages have for saving
_RECONNECT = 5.0
"""Seconds until a lost scheduler is given up; a client that reconnects has lost its futures in any case."""
_AGAIN = 300.0
_LATE_BEATS = 5.0  # seconds that heartbeats may be late when the scheduler checks for silent workers


class TaskPlace(ABC):
    @abstractmethod
    def open(self, notes: RunNotes) -> Client: ...

    @abstractmethod
    def close(self, client: Client) -> None: ...

    def check(self, stages: Sequence[Stage]) -> None:  # noqa: B027 (workers that join later may offer it)
        """Refuse stages that need resources that no worker of this place will ever have."""

    @abstractmethod
    def missing_worker(self, folder: str) -> str:
        """Advice for the user if there is no worker."""


@dataclass(kw_only=True, slots=True, eq=False)
class Here(TaskPlace):
    """Scheduler and worker inside this process, without an open port."""

    jobs: int
    devices: Sequence[str] = ()
    _cluster: SpecCluster | None = None

    def open(self, notes: RunNotes) -> Client:
        self._cluster = _cluster({"protocol": "inproc"}, self.jobs, self.devices)
        return Client(self._cluster, set_as_default=False)

    def close(self, client: Client) -> None:
        client.close()
        assert self._cluster is not None
        self._cluster.close()

    def check(self, stages: Sequence[Stage]) -> None:
        offered = {"GPU": len(self.devices)}
        for stage in stages:
            for name, amount in stage.resources.items():
                if amount > offered.get(name, 0):
                    raise UserError(
                        f"{stage.label} needs {amount:g} {name}, and this machine offers {offered.get(name, 0)}. "
                        "CUDA_VISIBLE_DEVICES limits the GPUs."
                    )

    def missing_worker(self, folder: str) -> str:
        return "This machine lacks the resources that they need."


@dataclass(kw_only=True, slots=True, eq=False)
class Listening(TaskPlace):
    """Like `Here`, but with a TLS port; other machines join it with the details in `engine.json`."""

    host: str
    port: int
    jobs: int
    devices: Sequence[str] = ()
    _cluster: SpecCluster | None = None
    _invitation: Invitation | None = None
    _folder: str = ""

    def open(self, notes: RunNotes) -> Client:
        require_free(self.host, self.port)
        certificate, key = self_signed()
        security = security_of(certificate, key)
        options = {"protocol": "tls", "host": self.host, "security": security}
        self._cluster = _cluster(options, self.jobs, self.devices, port=self.port)
        self._invitation = Invitation(
            address=self._cluster.scheduler_address,
            folder=notes.folder,
            certificate=certificate,
            key=key,
            nonce=notes.nonce,
            versions=Versions.here(),
        )
        self._invitation.write(notes.folder)
        self._folder = notes.folder
        return Client(self._cluster, security=security, set_as_default=False)

    def close(self, client: Client) -> None:
        if self._invitation is not None:
            self._invitation.remove(self._folder)
        client.close()
        if self._cluster is not None:
            self._cluster.close()

    def missing_worker(self, folder: str) -> str:
        return f"Start a worker, on any machine that sees this folder: infoflow worker {folder}"


@dataclass(kw_only=True, slots=True, eq=False)
class Outside(TaskPlace):
    """An existing Dask cluster; the user's Dask configuration says how to reach it, certificates included."""

    address: str | None = None
    scheduler_file: str | None = None
    _log_level: int = logging.NOTSET

    def open(self, notes: RunNotes) -> Client:
        address = self.address or address_in(self.scheduler_file or "")
        try:
            asyncio.run(_reach(address))  # a client without a connection would leave its thread behind
            client = Client(address, set_as_default=False, timeout=_RECONNECT)
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            raise UserError(
                f"--cluster: no scheduler answers at {address} ({error}). Certificates for tls:// are set in Dask's "
                "configuration, distributed.comm.tls."
            ) from None
        self._log_level = _LOG.level
        _LOG.setLevel(logging.CRITICAL)  # we report a lost scheduler ourselves
        return client

    def close(self, client: Client) -> None:
        client.close()
        _LOG.setLevel(self._log_level)

    def missing_worker(self, folder: str) -> str:
        return f"Add workers to the cluster at {self.address or self.scheduler_file}."


class _Scheduler(Scheduler):
    """Dask's scheduler, which waits for heartbeats before it judges workers, since after a suspension all are late."""

    async def check_worker_ttl(self) -> None:
        await asyncio.sleep(_LATE_BEATS)
        await super().check_worker_ttl()


async def _reach(address: str) -> None:
    comm = await connect(address, timeout=PATIENCE / 3, **Security().get_connection_args("client"))
    await comm.close()


def _cluster(options: dict[str, Any], jobs: int, devices: Sequence[str], port: int = 0) -> SpecCluster:
    """A scheduler in this process, with a worker if it has jobs."""
    web = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}  # None would open a port on all interfaces
    resources = {"GPU": len(devices)} if devices else {}
    worker = {"nthreads": jobs, "memory_limit": 0, "resources": resources, **options, **web}
    with own_settings():
        cluster = SpecCluster(
            scheduler={"cls": _Scheduler, "options": {"port": port, **options, **web}},
            workers={0: {"cls": Worker, "options": worker}} if jobs else {},
            security=options.get("security"),
            silence_logs=logging.CRITICAL,
            name=f"infoflow-{time.time_ns()}",
        )
    cluster.sync(close_http, cluster)
    return cluster


def place(where: str, jobs: int, insecure: bool) -> TaskPlace:
    """The place that `--cluster` names: `listen...`, an address, or a scheduler file."""
    if where == "listen" or where.startswith("listen:"):
        host, port = parse_listen(where)
        return Listening(host=host, port=port, jobs=jobs, devices=visible_devices())
    if "://" in where:
        require_private(where, insecure)
        return Outside(address=where)
    address = address_in(where)
    require_private(address, insecure)
    return Outside(scheduler_file=where)


async def close_http(cluster: SpecCluster) -> None:
    """Close the ports of Dask's web pages, which it always opens."""
    for node in (cluster.scheduler, *cluster.workers.values()):
        node.http_server.stop()


class DaskEngine:
    def __init__(
        self, place: TaskPlace, folder: str, entry: str, preload: Sequence[str], devices: Sequence[str] | None = None
    ) -> None:
        self._place, self._entry = place, entry
        self._notes = RunNotes(folder)
        self._plugin = StagePlugin(self._notes.nonce, self._notes.folder, preload, devices)
        self._heard: queue.SimpleQueue[tuple[str, Message]] = queue.SimpleQueue()

    def __enter__(self) -> "DaskEngine":
        self._notes.open()
        try:
            self._client = self._place.open(self._notes)
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
        stages = in_order(graph)
        self._place.check(stages)
        run = Following(stages=stages, futures=self._submit(stages, self._notes.new_run()), on_event=on_event)
        try:
            while not run.is_over():
                time.sleep(_LOOK)
                ended = run.ended()  # asked first, so the messages of ended stages have arrived by now
                self._pass_on(run)
                run.note(ended)
                self._watch(run)
        except BaseException:
            with suppress(Exception):  # the callback may be what failed
                on_event(
                    Event(
                        kind="note",
                        text="Stopping: running stages save their state. Press Ctrl-C again to stop at once.",
                    )
                )
            self._stop(run)
            raise
        if run.hopeless:
            self._stop(run)
        self._pass_on(run)
        return run.endings

    def _submit(self, stages: Sequence[Stage], notes: str) -> dict[str, Future]:
        lengths = path_lengths(stages)
        futures: dict[str, Future] = {}
        # Longest path first: a need's path is never shorter than that of its dependents.
        for stage in sorted(stages, key=lambda stage: -lengths[stage.key]):
            futures[stage.key] = self._client.submit(
                supervise,
                self._notes.nonce,
                self._order(stage, notes),
                float(stage.resources.get("GPU", 0)),
                *(futures[need] for need in stage.needs if need in futures),
                key=f"{notes}/{stage.key}",
                priority=lengths[stage.key],
                resources=dict(stage.resources) or None,
                retries=0,
                pure=False,
            )
        return futures

    def _order(self, stage: Stage, notes: str) -> StageMessage:
        folder = self._notes.folder
        return StageMessage(folder=folder, key=stage.key, notes=notes, entry=self._entry, threads=stage.threads)

    def _pass_on(self, run: Following) -> None:
        """Deliver the stages' messages in the calling thread."""
        with suppress(queue.Empty):
            while True:
                run.hear(*self._heard.get_nowait())

    def _watch(self, run: Following) -> None:
        """Report if stages wait and no worker runs any of them."""
        if self._client.status != "running":  # it would reconnect as another client, without its futures
            raise UserError(GONE)
        now = time.monotonic()
        if now < run.next_watch:
            return
        run.next_watch = now + WATCH
        try:
            somebody = bool(self._client.scheduler_info()["workers"])
        except (OSError, RuntimeError, TimeoutError, ValueError):
            raise UserError(GONE) from None
        if run.running and somebody:
            run.next_note = now + PATIENCE
        elif now >= run.next_note:
            run.next_note = now + _AGAIN
            count = len(run.stages) - len(run.endings)
            what = "1 stage waits" if count == 1 else f"{count} stages wait"
            needed = sorted({name for stage in run.stages if stage.key not in run.endings for name in stage.resources})
            which = f" (some need {', '.join(needed)})" if needed else ""
            why = "there is no worker"
            if somebody:
                why = "no worker has the resources" if needed else "the workers have started none yet"
            run.on_event(
                Event(kind="note", text=f"{what}, and {why}{which}. {self._place.missing_worker(self._notes.folder)}")
            )

    def _stop(self, run: Following) -> None:
        """Let running stages save for at most two minutes; a second Ctrl-C ends them at once."""
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
        if self._client.status != "running":
            return []
        try:
            return list(self._client.run(on_worker, self._notes.nonce, action, on_error="ignore").values())
        except (OSError, RuntimeError, TimeoutError, ValueError):
            return []
