"""What runs inside a Dask worker: a plugin for each study, and the task that supervises one stage.

This file and `_dask.py` are all that imports Dask.
"""

import asyncio
import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import dask
from distributed import Reschedule, Status, Worker, WorkerPlugin, get_worker
from distributed.comm.addressing import get_address_host
from distributed.security import Security
from distributed.utils import get_ip

from infoflow.foundation import current_display, stop_signals

from ._child import StageMessage
from ._invitation import Invitation, Versions
from ._relay import Message
from ._starting import starter
from ._supervisor import Leaving, StageFailed, Stopped, Supervisor

_REACH = 15.0
"""Seconds until a study that does not answer is taken for gone."""
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


def plugin_name(nonce: str) -> str:
    """The name of a study's plugin, and of the topic of its events."""
    return f"infoflow-{nonce}"


class StagePlugin(WorkerPlugin):
    """A study's processes on this worker; the fork server starts with it."""

    def __init__(self, nonce: str, folder: str, preload: Sequence[str], devices: Sequence[str] | None = None) -> None:
        self.name = plugin_name(nonce)
        self.folder = folder
        self.refusal = ""
        self._preload, self._devices, self._versions = tuple(preload), devices, Versions.here()

    async def setup(self, worker: Worker) -> None:
        await self._replace_killed(worker)
        self.refusal = self._versions.refusal(Versions.here())
        self.starter = starter(self._preload)
        self.starter.open()
        self.supervisor = Supervisor(self.starter, visible_devices() if self._devices is None else self._devices)

    async def _replace_killed(self, worker: Worker) -> None:
        """End what a killed study has left on this worker: a folder has one study at a time."""
        for name, plugin in list(worker.plugins.items()):
            if isinstance(plugin, StagePlugin) and plugin.folder == self.folder and plugin is not self:
                await worker.plugin_remove(name)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Stop a stage that nobody wants any more: its study was killed, and its scheduler goes on."""
        if (start, finish) == ("executing", "released"):
            self.supervisor.give_up(str(key).rpartition("/")[2])

    async def teardown(self, worker: Worker) -> None:
        """End the processes; those that still run may save first. (At the end of a study none does.)"""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self.supervisor.leave()
        self.supervisor.wait(_GRACE)
        self.supervisor.kill()
        self.supervisor.wait(5)
        self.starter.close()


def supervise(nonce: str, order: StageMessage, gpus: float, *needed: None) -> None:
    """The Dask task of a stage; `needed` are the tasks that must be done before it.

    Raises:
        Stopped: The study stops. (As a result it would let Dask start what needs this stage.)
        Reschedule: This worker leaves, or was told to give the stage up: another goes on; this counts as no failure.
        StageFailed: The stage failed.
    """
    worker = get_worker()
    plugin = worker.plugins[plugin_name(nonce)]
    if plugin.refusal:
        raise StageFailed(order.key, plugin.refusal, plugin.refusal, "")

    def tell(message: Message) -> None:
        worker.log_event(plugin_name(nonce), [order.key, message])

    try:
        tell(plugin.supervisor.supervise(order, gpus, tell))
    except Leaving:
        time.sleep(0.2)  # until the scheduler knows: it could send the stage here again
        raise Reschedule from None
    except (Stopped, StageFailed):
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise StageFailed(order.key, text, text, "") from error


def on_worker(nonce: str, action: str, dask_worker: Worker) -> bool:
    """`stop`, `kill` or `is_idle` of a study's supervisor; run by the worker's event loop, however busy its threads."""
    plugin = dask_worker.plugins.get(plugin_name(nonce))
    return plugin is None or bool(getattr(plugin.supervisor, action)())


def visible_devices(hardware: Path = Path("/dev")) -> tuple[str, ...]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` names, as numbers or UUIDs; where it is not set, all of this machine.

    CUDA itself is never asked: it cannot be used in a process that is forked afterwards.
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return tuple(map(str, range(len(list(hardware.glob("nvidia[0-9]*"))))))
    names = [name.strip() for name in setting.split(",")]
    return tuple(name for name in names if name not in ("", "-1", "NoDevFiles"))


def serve(invitation: Invitation, jobs: int, devices: Sequence[str]) -> Literal["ended", "left"]:
    """Work for one study until it ends, or this process is asked to leave."""
    return asyncio.run(_serve(invitation, jobs, devices))


async def _serve(invitation: Invitation, jobs: int, devices: Sequence[str]) -> Literal["ended", "left"]:
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with own_settings():
        worker = Worker(
            invitation.address,
            security=security_of(invitation),
            host=get_ip(get_address_host(invitation.address)),
            nthreads=jobs,
            memory_limit=0,
            resources={"GPU": len(devices)} if devices else {},
            dashboard=False,
            dashboard_address="127.0.0.1:0",  # None would open a port on all interfaces
            death_timeout=_REACH,
        )
        with suppress(OSError, TimeoutError, asyncio.TimeoutError):
            await worker
    if worker.status != Status.running:  # an invitation of a study that was killed
        await worker.close()
        return "ended"
    worker.http_server.stop()
    current_display().note(f"Joined the study: {jobs} at a time, {len(devices)} GPUs.")
    leaving = asyncio.Event()
    with _signals(leaving) as asked:
        ends = [asyncio.ensure_future(worker.finished()), asyncio.ensure_future(leaving.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if asked and worker.status == Status.running:  # else the study has ended meanwhile
            await _leave(worker)
        await worker.close()
    return "left" if asked else "ended"


def security_of(invitation: Invitation) -> Security:
    """TLS with the study's one certificate on both sides."""
    roles = {
        f"tls_{role}_{part}": value
        for role in ("client", "scheduler", "worker")
        for part, value in (("cert", invitation.certificate), ("key", invitation.key))
    }
    return Security(require_encryption=True, tls_ca_file=invitation.certificate, **roles)


async def _leave(worker: Worker) -> None:
    """Take nothing new, let what runs save, and give it back."""
    worker.status = Status.closing_gracefully
    supervisors = [plugin.supervisor for plugin in worker.plugins.values() if isinstance(plugin, StagePlugin)]
    for supervisor in supervisors:
        supervisor.leave()
    for supervisor in supervisors:
        await asyncio.to_thread(supervisor.wait, _GRACE)
    await asyncio.sleep(0.5)  # until their tasks have been given back


@contextmanager
def _signals(leaving: asyncio.Event) -> Iterator[list[int]]:
    """SIGTERM and Ctrl-C set `leaving`; gives the list of those that came.

    `loop.add_signal_handler` would lose one that comes after the loop has turned for the last time in the block: only
    the loop hears of it then, and nobody asks the loop any more. The list knows it at once.
    """
    loop = asyncio.get_running_loop()
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        asked.append(number)
        loop.call_soon_threadsafe(leaving.set)

    with stop_signals(ask):
        yield asked
