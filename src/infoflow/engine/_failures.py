"""Faults of stages: which are the user's or the machine's, when to give up, and how all are reported at the end."""

from collections import Counter
from collections.abc import Mapping, Sequence

from infoflow.foundation import UserError, plain_fault

from ._stage import Ending, Stage

_SAME = 3
_TOLD = 5
"""Number of reasons reported in full; each further failure gets one line."""


def fault(error: BaseException) -> str | None:
    """The message for a mistake of the user or the machine (no disk, no permission, no memory); None: a bug."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, without importing it
        return f"The machine has too little memory for this stage ({str(error)[:200] or type(error).__name__})."
    if isinstance(error, UserError):
        return str(error)
    if (plain := plain_fault(error)) is not None:
        return plain
    return str(error) or type(error).__name__ if isinstance(error, OSError) else None


class Tally:
    """Counts failures by their reason."""

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
    parts = [_told(text, stages) for text, stages in failed.items()][:_TOLD]
    parts += [f"{label}: {log}" for stages in [*failed.values()][_TOLD:] for label, log in stages]
    states = Counter(ending.state for ending in endings.values())
    if kept := states["done"]:
        parts.append(f"{_stages(kept)} succeeded and {'is' if kept == 1 else 'are'} kept.")
    if left := states["skipped"] + states["stopped"]:
        parts.append(f"{_stages(left)} {'was' if left == 1 else 'were'} not run.")
    parts += [hint] if hint else []
    raise UserError("\n".join(parts))


def _told(text: str, stages: Sequence[tuple[str, str]]) -> str:
    """The report for the stages (label and log) that failed for one reason."""
    logs = [log for _, log in stages if log]
    told = f"{', '.join(sorted(label for label, _ in stages))}: {text}"
    return told + (f"\n{'Its log' if len(logs) == 1 else 'Their logs'}: {', '.join(logs)}" if logs else "")


def _stages(number: int) -> str:
    return f"{number} stage{'s' * (number > 1)}"
