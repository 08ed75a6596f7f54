"""The stages that an engine runs: their protocol, messages and display, how they end, and their faults."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from infoflow.foundation import JsonDisplay, UserError, plain_fault

EventKind = Literal["start", "progress", "note", "warning", "end"]
EndingState = Literal["done", "failed", "skipped", "stopped"]


@runtime_checkable
class Stage(Protocol):
    """A piece of work that writes its results to files and may need the results of other stages."""

    @property
    def key(self) -> str:
        """A hash of all that the result depends on, which identifies the stage on every machine."""
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
        """Seconds that the stage takes, recorded or else estimated."""
        ...

    @property
    def threads(self) -> int:
        """Threads of its process: the same on every machine, since another number changes the last bits of results."""
        ...

    @property
    def resources(self) -> Mapping[str, float]:
        """Resources of a worker in addition to its job slot: `{"GPU": 1}`, or .5 if two stages may share one."""
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
    seconds: float  # wall time of its last process
    cpu_seconds: float  # CPU time of that process and of child processes that it waited for, without earlier attempts
    peak_memory: int  # peak bytes of that process, 0 if the system does not report it
    host: str
    processor: str
    device: str  # the assigned GPU (as `CUDA_VISIBLE_DEVICES` names it), else `cpu`
    threads: int  # threads that torch used


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    state: EndingState
    facts: Mapping[str, Any] = field(default_factory=dict)  # done: the return value of `run`
    usage: Usage | None = None  # done: resources used
    text: str = ""  # failed: the reason
    log: str = ""  # failed: the file with all its output
    because: str = ""  # skipped: key of the stage that failed


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """A message of a running stage, or of the engine if `stage` is empty."""

    kind: EventKind
    stage: str = ""
    text: str = ""  # note, warning: the text
    fields: Mapping[str, Any] = field(default_factory=dict)
    """start: the `host`; progress: `label`, `done`, `total`, `unit`, `rate`, `seconds_left`, `at`, losses."""
    ending: Ending | None = None  # end: how the stage ended


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


_SAME = 3
_MOST_REASONS = 5  # number of reasons reported in full; each further failure gets one line


def fault(error: BaseException) -> str | None:
    """The message for a mistake of the user or the machine (no disk, no permission, no memory); None: a bug."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's error, found by name
        return f"The machine has too little memory for this stage ({str(error)[:200] or type(error).__name__})."
    if isinstance(error, UserError):
        return str(error)
    if (plain := plain_fault(error)) is not None:
        return plain
    return str(error) or type(error).__name__ if isinstance(error, OSError) else None


class Tally:
    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def is_hopeless(self, reason: str) -> bool:
        """Whether this failure is the third of its kind, so that the plan is at fault and not a stage."""
        self._reasons[reason] += 1
        return self._reasons[reason] >= _SAME


def check_endings(graph: Sequence[Stage], endings: Mapping[str, Ending], hint: str = "") -> None:
    """Report all failures together, followed by `hint`.

    Raises:
        UserError: A stage failed.
    """
    labels = {stage.key: stage.label for stage in graph}
    failed: dict[str, list[tuple[str, str]]] = {}
    for key, ending in endings.items():
        if ending.state == "failed":
            failed.setdefault(ending.text, []).append((labels[key], ending.log))
    if not failed:
        return
    parts = [_failure_text(text, stages) for text, stages in failed.items()][:_MOST_REASONS]
    parts += [f"{label}: {log}" for stages in [*failed.values()][_MOST_REASONS:] for label, log in stages]
    states = Counter(ending.state for ending in endings.values())
    if kept := states["done"]:
        parts.append(f"{_stages(kept)} succeeded and {'is' if kept == 1 else 'are'} kept.")
    if left := states["skipped"] + states["stopped"]:
        parts.append(f"{_stages(left)} {'was' if left == 1 else 'were'} not run.")
    parts += [hint] if hint else []
    raise UserError("\n".join(parts))


def _failure_text(text: str, stages: Sequence[tuple[str, str]]) -> str:
    logs = [log for _, log in stages if log]
    failure = f"{', '.join(sorted(label for label, _ in stages))}: {text}"
    return failure + (f"\n{'Its log' if len(logs) == 1 else 'Their logs'}: {', '.join(logs)}" if logs else "")


def _stages(number: int) -> str:
    return f"{number} stage{'s' * (number > 1)}"


Message = dict[str, Any]
"""One event as JSON: `{"event": "progress", ...}`."""


class Relay(JsonDisplay):
    """A display that passes each event to `tell`, at most one per second for a running job."""

    seconds_between = 1.0

    def __init__(self, tell: Callable[[Message], None]) -> None:
        super().__init__()
        self._tell = tell

    def tell(self, event: Message) -> None:
        self._tell(event)


def as_event(stage: str, message: Mapping[str, Any]) -> Event:
    fields = {name: value for name, value in message.items() if name not in ("event", "text")}
    return Event(kind=message["event"], stage=stage, text=message.get("text", ""), fields=fields)
