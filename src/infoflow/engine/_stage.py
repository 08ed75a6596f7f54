"""The stages that an engine runs, their messages, and how each one ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

EventKind = Literal["start", "progress", "note", "warning", "end"]
EndingState = Literal["done", "failed", "skipped", "stopped"]


@runtime_checkable
class Stage(Protocol):
    """A piece of work that ends in files and may need other stages."""

    @property
    def key(self) -> str:
        """A hash of the result's dependencies, which identifies the stage on every machine."""
        ...

    @property
    def label(self) -> str:
        """Display name: `train causal-lm/seed-0`."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of stages that must have succeeded."""
        ...

    @property
    def cost(self) -> float:
        """Seconds: recorded, else estimated."""
        ...

    @property
    def threads(self) -> int:
        """Threads of its process, equal on every machine, since another number changes the last bits."""
        ...

    @property
    def resources(self) -> Mapping[str, float]:
        """Resources of a worker in addition to one of its jobs: `{"GPU": 1}`, or .5 if two may share one."""
        ...

    def run(self) -> dict[str, Any]:
        """Do the work, continuing from what an earlier call saved; returns facts in JSON form."""
        ...


@runtime_checkable
class Checked(Protocol):
    """A stage that knows whether its results are in the run folder.

    An engine's process checks each need before it starts, since a shared file system may show a file late.
    """

    def is_done(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Resources that a stage used."""

    seconds: float
    """Wall time of its last process."""
    cpu_seconds: float
    """CPU time of that process and of child processes that it waited for, without earlier attempts."""
    peak_memory: int
    """Peak bytes of that process, 0 if the system does not report it."""
    host: str
    processor: str
    device: str
    """The assigned GPU (as `CUDA_VISIBLE_DEVICES` names it), else `cpu`."""
    threads: int
    """Threads that torch used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a stage ended."""

    state: EndingState
    facts: Mapping[str, Any] = field(default_factory=dict)
    """done: the return value of `run`."""
    usage: Usage | None = None
    """done: resources used."""
    text: str = ""
    """failed: the reason."""
    log: str = ""
    """failed: the file with all its output."""
    because: str = ""
    """skipped: key of the stage that failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """A message of a running stage, or of the engine if `stage` is empty."""

    kind: EventKind
    stage: str = ""
    text: str = ""
    """note, warning: the text."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """start: the `host`; progress: `label`, `done`, `total`, `unit`, `rate`, `seconds_left`, losses."""
    ending: Ending | None = None
    """end: how the stage ended."""


def in_order(graph: Sequence[Stage]) -> list[Stage]:
    """The stages, each after its needs within the graph, otherwise in the original order."""
    stages = {stage.key: stage for stage in graph}
    assert len(stages) == len(graph), "two stages have one key"
    ordered: dict[str, Stage] = {}
    waiting: list[str] = list(reversed(stages))
    entered: set[str] = set()
    while waiting:
        key = waiting[-1]
        missing = [need for need in stages[key].needs if need in stages and need not in ordered]
        if key in ordered or not missing:
            ordered[key] = stages[waiting.pop()]
            continue
        assert key not in entered, f"{stages[key].label} needs itself"
        entered.add(key)
        waiting += reversed(missing)
    return list(ordered.values())


def path_lengths(graph: Sequence[Stage]) -> dict[str, float]:
    """Seconds of the longest chain that begins with each stage; the longest runs first."""
    stages = in_order(graph)
    rest = dict.fromkeys((stage.key for stage in stages), 0.0)
    lengths: dict[str, float] = {}
    for stage in reversed(stages):
        lengths[stage.key] = stage.cost + rest[stage.key]
        for need in stage.needs:
            if need in rest:
                rest[need] = max(rest[need], lengths[stage.key])
    return lengths
