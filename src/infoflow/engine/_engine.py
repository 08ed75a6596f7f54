"""The protocol of engines, and the one that runs stages one after another in the calling process."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from infoflow.foundation import launched, use_display

from ._stage import Ending, Event, Relay, Stage, Tally, as_event, fault, in_order
from ._starting import Meter, use_threads


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
    jobs: int, preload: Sequence[str] = (), *, folder: Path | str, entry: str, devices: Sequence[str] | None = None
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


class InTurn:
    """An engine without child processes; it passes on a stage's exception if it is a bug, and any under `torchrun`."""

    def __enter__(self) -> "InTurn":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, graph: Sequence[Stage], on_event: Callable[[Event], None]) -> dict[str, Ending]:
        """Run each stage after those that it needs; see `Engine`.

        Raises:
            KeyboardInterrupt: Interrupted; the running stage has saved what it can.
        """
        stages = in_order(graph)
        endings: dict[str, Ending] = {}
        tally, hopeless = Tally(), False
        with _threads_kept():
            for stage in stages:
                blame = _blame(stage, endings)
                if hopeless:
                    ending = Ending(state="stopped")
                elif blame:
                    ending = Ending(state="skipped", because=blame)
                else:
                    on_event(Event(kind="start", stage=stage.key))
                    ending = _run(stage, on_event)
                    hopeless = ending.state == "failed" and tally.is_hopeless(ending.text)
                endings[stage.key] = ending
                on_event(Event(kind="end", stage=stage.key, ending=ending))
        return endings


def _run(stage: Stage, on_event: Callable[[Event], None]) -> Ending:
    use_threads(stage.threads)
    meter = Meter()
    try:
        with use_display(Relay(lambda message: on_event(as_event(stage.key, message)))):
            facts = stage.run()
    except Exception as error:
        text = fault(error)
        if text is None or launched()[1] > 1:
            raise
        return Ending(state="failed", text=text)
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "") if "GPU" in stage.resources else ""
    return Ending(state="done", facts=facts, usage=meter.usage(device, stage.threads))


def _blame(stage: Stage, endings: dict[str, Ending]) -> str:
    """Key of the failed stage that blocks this one, or ""."""
    for need in stage.needs:
        ending = endings.get(need)
        if ending is not None and ending.state != "done":
            return ending.because or need
    return ""


@contextmanager
def _threads_kept() -> Iterator[None]:
    import sys

    before = os.environ.get("OMP_NUM_THREADS")
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else None
    try:
        yield
    finally:
        if threads is not None:
            use_threads(threads)
        if before is None:
            os.environ.pop("OMP_NUM_THREADS", None)
        else:
            os.environ["OMP_NUM_THREADS"] = before
