"""The protocol of engines, and how to get one."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from ._stage import Ending, Event, Stage


@runtime_checkable
class Engine(Protocol):
    """Runs a graph of stages; a context manager that stops running stages on exit."""

    def __enter__(self) -> "Engine": ...

    def __exit__(self, *error: object) -> None: ...

    def run(self, graph: Sequence[Stage], on_event: Callable[[Event], None]) -> dict[str, Ending]:
        """Run each stage of `graph` after those that it needs; needs outside the graph must have succeeded before.

        A failed stage prevents those that need it; the others continue, until three have failed for the same reason.
        `on_event` is called in this thread.

        Raises:
            KeyboardInterrupt: Interrupted; running stages have saved and stopped.
            Exception: Any exception from `on_event` stops the stages in the same way.
        """
        ...


def local_engine(
    jobs: int,
    preload: Sequence[str] = (),
    *,
    folder: Path | str,
    entry: str,
    devices: Sequence[str] | None = None,
) -> Engine:
    """An engine on this machine with `jobs` concurrent processes; it opens no port and needs no setup.

    Args:
        jobs: Number of concurrent stages.
        preload: Modules that the processes need; they are imported once, starting when the engine opens.
        folder: The run folder. Only one engine at a time may work in it.
        entry: `package.module:function`, called in each process with (run folder, key); returns the stage.
        devices: GPUs (numbers or UUIDs) for stages that need the resource `GPU`; default: those of
            `CUDA_VISIBLE_DEVICES`.
    """
    from ._dask import DaskEngine, Here
    from ._worker import visible_devices

    found = visible_devices() if devices is None else tuple(devices)
    return DaskEngine(Here(jobs=jobs, devices=found), os.fspath(folder), entry, preload, found)


def cluster_engine(
    where: str,
    run_folder: Path | str,
    *,
    entry: str,
    preload: Sequence[str] = (),
    jobs: int = 0,
    insecure: bool = False,
) -> Engine:
    """An engine whose stages run on several machines that share the run folder.

    Args:
        where: `listen[:HOST[:PORT]]`: other machines join this one by `infoflow worker RUN_FOLDER`, over TLS;
            `tls://HOST:8786` or a scheduler file: an existing Dask cluster.
        run_folder: The run folder, under the path common to all machines.
        entry: As in `local_engine`.
        preload: As in `local_engine`, on each worker.
        jobs: Concurrent stages in this process's own worker (`listen` only).
        insecure: Allow an unencrypted connection to an external scheduler.

    Raises:
        UserError: `where` is invalid or not encrypted.
    """
    from ._dask import DaskEngine, place

    return DaskEngine(place(where, jobs, insecure), os.fspath(run_folder), entry, preload)
