"""Code inside a Dask worker: a plugin for each study, and the task that supervises one stage.

Only this file and `_dask.py` import Dask.
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
from distributed.comm.addressing import get_address_host, parse_host_port
from distributed.security import Security
from distributed.utils import get_ip

from infoflow.foundation import UserError, as_written, current_display, stop_signals

from ._child import StageMessage
from ._invitation import FILE, Invitation, Unreachable, Versions, unreachable_because
from ._stage import Message
from ._starting import starter
from ._supervisor import Leaving, StageFailed, Stopped, Supervisor

_REACH = 15.0  # seconds that the study has to answer one request
_SILENCE = 45.0  # seconds without an answer until the connection is given up
_GRACE = 120.0  # seconds that running stages have for saving

_SETTINGS = {
    "distributed.scheduler.allowed-failures": 100,  # dying workers are pre-empted machines
    "distributed.scheduler.worker-ttl": "60s",  # a worker silent for this long is lost: its stages go to others
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.diagnostics.nvml": False,
}


@contextmanager
def own_settings() -> Iterator[None]:
    """Use Dask's defaults and our settings, since the user's configuration and `DASK_*` concern other clusters."""
    with (
        dask.config.set(dask.config.merge(*dask.config.defaults)),
        dask.config.set(_SETTINGS),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Couldn't detect a suitable IP address")  # without a network
        yield


def plugin_name(nonce: str) -> str:
    return f"infoflow-{nonce}"


class StagePlugin(WorkerPlugin):
    """Runs a study's processes on this worker; setup starts their fork server."""

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
        """End what a killed study has left on this worker, since a folder can have only one study at a time."""
        for name, plugin in list(worker.plugins.items()):
            if isinstance(plugin, StagePlugin) and plugin.folder == self.folder and plugin is not self:
                await worker.plugin_remove(name)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Stop a stage that is no longer wanted: its study was killed, while its scheduler continues."""
        if (start, finish) == ("executing", "released"):
            self.supervisor.give_up(str(key).rpartition("/")[2])

    async def teardown(self, worker: Worker) -> None:
        """End the processes; those still running may save first, although none runs at the end of a study."""
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
        Stopped: The study stops. (Returning a result instead would let Dask start the stages that need this one.)
        Reschedule: This worker leaves or must give up the stage: another continues, and no failure is counted.
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
        time.sleep(0.2)  # the scheduler must first learn of it, or it could assign the stage to this worker again
        raise Reschedule from None
    except (Stopped, StageFailed):
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise StageFailed(order.key, text, text, "") from error


def on_worker(nonce: str, action: str, dask_worker: Worker) -> bool:
    """Call `stop`, `kill` or `is_idle` of a study's supervisor on the event loop, which busy threads cannot delay."""
    plugin = dask_worker.plugins.get(plugin_name(nonce))
    return plugin is None or bool(getattr(plugin.supervisor, action)())


def visible_devices(hardware: Path = Path("/dev")) -> tuple[str, ...]:
    """The GPUs in `CUDA_VISIBLE_DEVICES`, as numbers or UUIDs; if it is not set, all GPUs of this machine.

    It never calls CUDA, which cannot be used in a process that is forked afterwards.
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return tuple(map(str, range(len(list(hardware.glob("nvidia[0-9]*"))))))
    names = [name.strip() for name in setting.split(",")]
    return tuple(name for name in names if name not in ("", "-1", "NoDevFiles"))


def serve(invitation: Invitation, jobs: int, devices: Sequence[str]) -> Literal["lost", "left"]:
    """Work for one study until the connection ends or this process is asked to leave."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with own_settings():
        return asyncio.run(_serve(invitation, jobs, devices))


async def _serve(invitation: Invitation, jobs: int, devices: Sequence[str]) -> Literal["lost", "left"]:
    worker = await _joined(invitation, jobs, devices)
    worker.http_server.stop()
    current_display().note(f"Joined the study: {jobs} concurrent stages, {len(devices)} GPUs.")
    leaving = asyncio.Event()
    with _signals(leaving) as received:
        ends = [asyncio.ensure_future(end) for end in (worker.finished(), leaving.wait(), _silence(worker))]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if received and worker.status == Status.running:  # otherwise the study has ended meanwhile
            await _leave(worker)
        await worker.close()
    return "left" if received else "lost"


async def _joined(invitation: Invitation, jobs: int, devices: Sequence[str]) -> Worker:
    """A worker that the study has admitted.

    Raises:
        Unreachable: The study cannot be joined.
        UserError: The study's invitation is damaged.
    """
    security = security_of(invitation.certificate, invitation.key)
    try:
        security.get_connection_args("worker")
    except (OSError, ValueError):
        raise UserError(
            f"{FILE} in {as_written(invitation.folder)} is damaged: its certificate and key are invalid. Start the "
            "study again with --cluster listen."
        ) from None
    try:
        await asyncio.wait_for(_knock(invitation.address, security), _REACH)
        worker = Worker(
            invitation.address,
            security=security,
            host=get_ip(get_address_host(invitation.address)),
            nthreads=jobs,
            memory_limit=0,
            resources={"GPU": len(devices)} if devices else {},
            dashboard=False,
            dashboard_address="127.0.0.1:0",  # None would open a port on all interfaces
            death_timeout=_REACH,
        )
    except (OSError, ValueError) as error:  # includes timeouts
        raise Unreachable(unreachable_because(error, invitation.address)) from None
    try:
        await worker
    except (OSError, RuntimeError) as error:
        await worker.close()
        raise Unreachable(unreachable_because(error, invitation.address)) from None
    return worker


async def _knock(address: str, security: Security) -> None:
    """Connect once, since Dask's worker would retry silently without the reason for its failure."""
    host, port = parse_host_port(address.removeprefix("tls://"))
    _, writer = await asyncio.open_connection(host, port, ssl=security.get_connection_args("worker")["ssl_context"])
    writer.close()


async def _silence(worker: Worker) -> None:
    """Return once the study has been silent for `_SILENCE` seconds; a connection can die unnoticed."""
    heard = time.monotonic()
    while time.monotonic() - heard < _SILENCE:
        await asyncio.sleep(_REACH / 3)
        with suppress(OSError):
            await asyncio.wait_for(worker.scheduler.identity(), _REACH)
            heard = time.monotonic()


def security_of(certificate: str, key: str) -> Security:
    roles = {
        f"tls_{role}_{part}": value
        for role in ("client", "scheduler", "worker")
        for part, value in (("cert", certificate), ("key", key))
    }
    return Security(require_encryption=True, tls_ca_file=certificate, **roles)


async def _leave(worker: Worker) -> None:
    """Accept nothing new, let running stages save, and return them to the scheduler."""
    worker.status = Status.closing_gracefully
    supervisors = [plugin.supervisor for plugin in worker.plugins.values() if isinstance(plugin, StagePlugin)]
    for supervisor in supervisors:
        supervisor.leave()
    for supervisor in supervisors:
        await asyncio.to_thread(supervisor.wait, _GRACE)
    await asyncio.sleep(0.5)  # until the stages' tasks have been returned


@contextmanager
def _signals(leaving: asyncio.Event) -> Iterator[list[int]]:
    """Let SIGTERM and Ctrl-C set `leaving`; yields the list of received signals.

    `loop.add_signal_handler` would lose a signal that arrives after the last turn of the loop in the block: only the
    loop receives it then, and nobody reads from the loop any more. The list contains it at once.
    """
    loop = asyncio.get_running_loop()
    numbers: list[int] = []

    def ask(number: int, _: object) -> None:
        numbers.append(number)
        loop.call_soon_threadsafe(leaving.set)

    with stop_signals(ask):
        yield numbers
