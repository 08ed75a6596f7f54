"""What runs inside a Dask worker: a plugin for each study, and the task that supervises one stage.

This file and `_dask.py` are all that imports Dask.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from distributed import Reschedule, Worker, WorkerPlugin, get_worker

from ._child import Order
from ._relay import Message
from ._starting import starter
from ._supervisor import Leaving, StageFailed, Stopped, Supervisor


def plugin_name(nonce: str) -> str:
    """The name of a study's plugin, and of the topic of its events."""
    return f"infoflow-{nonce}"


class StagePlugin(WorkerPlugin):
    """A study's processes on this worker; the fork server starts with it."""

    def __init__(self, nonce: str, preload: Sequence[str], devices: Sequence[str] | None = None) -> None:
        self.name = plugin_name(nonce)
        self._preload, self._devices = tuple(preload), devices

    def setup(self, worker: Worker) -> None:
        self.starter = starter(self._preload)
        self.starter.open()
        self.supervisor = Supervisor(self.starter, visible_devices() if self._devices is None else self._devices)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Stop a stage that nobody wants any more: its study was killed, and its scheduler goes on."""
        if finish == "cancelled":
            self.supervisor.give_up(str(key).rpartition("/")[2])

    async def teardown(self, worker: Worker) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self.supervisor.kill()
        self.supervisor.wait(5)
        self.starter.close()


def supervise(nonce: str, order: Order, gpus: float, *needed: None) -> None:
    """The Dask task of a stage; `needed` are the tasks that must be done before it.

    Raises:
        Stopped: The study stops. (As a result it would let Dask start what needs this stage.)
        Reschedule: This worker leaves, or was told to give the stage up: another goes on; this counts as no failure.
        StageFailed: The stage failed.
    """
    worker = get_worker()
    plugin = worker.plugins[plugin_name(nonce)]

    def tell(message: Message) -> None:
        worker.log_event(plugin_name(nonce), [order.key, message])

    try:
        tell(plugin.supervisor.supervise(order, gpus, tell))
    except Leaving:
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


def visible_devices() -> tuple[str, ...]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` names, as numbers or UUIDs."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return tuple(name.strip() for name in names if name.strip() not in ("", "-1", "NoDevFiles"))
