"""What an engine runs, what it tells meanwhile, and how each stage ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

EventKind = Literal["start", "progress", "note", "warning", "end"]
EndingState = Literal["done", "failed", "skipped", "stopped"]


@runtime_checkable
class Stage(Protocol):
    """A piece of work that ends in files; what it needs are other stages."""

    @property
    def key(self) -> str:
        """What the result depends on, as a hash: it names the stage on every machine."""
        ...

    @property
    def label(self) -> str:
        """For people: `train causal-lm/seed-0`."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of stages that must have ended well."""
        ...

    @property
    def cost(self) -> float:
        """Seconds: on record, else estimated."""
        ...

    @property
    def threads(self) -> int:
        """Threads of its process, the same on every machine: another number changes the last bits."""
        ...

    @property
    def resources(self) -> Mapping[str, float]:
        """What it takes of a worker beside one of its jobs: `{"GPU": 1}`, or .5 where two may share one."""
        ...

    def run(self) -> dict[str, Any]:
        """Do the work, going on from what an earlier call saved; returns facts that JSON can hold."""
        ...


@runtime_checkable
class Checked(Protocol):
    """A stage that knows whether its results lie in the run folder.

    An engine's process asks this of each need before it starts: a shared file system may show a file late.
    """

    def is_done(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What a stage took."""

    seconds: float
    """Wall time of its last process."""
    cpu_seconds: float
    """CPU time of that process and of those that it started and waited for; without those of earlier attempts."""
    peak_memory: int
    """Bytes of that process at most, 0 where the system does not tell."""
    host: str
    processor: str
    device: str
    """The GPU that it was given (as `CUDA_VISIBLE_DEVICES` names it), else `cpu`."""
    threads: int
    """Threads that torch has used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a stage ended."""

    state: EndingState
    facts: Mapping[str, Any] = field(default_factory=dict)
    """done: what `run` returned."""
    usage: Usage | None = None
    """done: what it took."""
    text: str = ""
    """failed: why."""
    log: str = ""
    """failed: the file with all that it said."""
    because: str = ""
    """skipped: key of the stage that failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """What a stage tells while it runs, or the engine (`stage` is empty then)."""

    kind: EventKind
    stage: str = ""
    text: str = ""
    """note, warning: what is said."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """start: where it runs (`host`); progress: `label`, `done`, `total`, `unit`, `rate`, `seconds_left`, losses."""
    ending: Ending | None = None
    """end: how."""


def in_order(graph: Sequence[Stage]) -> list[Stage]:
    """The stages, each after those of the graph that it needs, else in the given order."""
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
    """Seconds of the longest chain that begins with each stage: what is longest is done first."""
    stages = in_order(graph)
    rest = dict.fromkeys((stage.key for stage in stages), 0.0)
    lengths: dict[str, float] = {}
    for stage in reversed(stages):
        lengths[stage.key] = stage.cost + rest[stage.key]
        for need in stage.needs:
            if need in rest:
                rest[need] = max(rest[need], lengths[stage.key])
    return lengths
