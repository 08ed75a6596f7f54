"""Runs stages one after another in the calling process: for `torchrun`, single processes and debugging."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from infoflow.foundation import launched, use_display

from ._failures import Tally, fault
from ._relay import Relay, as_event
from ._stage import Ending, Event, Stage, in_order
from ._usage import Meter, use_threads


class InTurn:
    """The engine without processes; a bug in a stage is raised unchanged, and under `torchrun` so is each error."""

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
    """Restore the caller's number of threads."""
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
