"""Faults of stages: which the user or the machine can answer for, when to give up, and how all are told at the end."""

from collections import Counter
from collections.abc import Mapping, Sequence

from infoflow.foundation import UserError

from ._stage import Ending, Stage

_SAME = 3
_TOLD = 5
"""Failures that are told in full; of the others there is a line each."""


def fault(error: BaseException) -> str | None:
    """What to tell of a mistake of the user or the machine (no disk, no permission, no memory); None: a bug."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, without importing it
        return f"The machine has too little memory for this stage ({str(error)[:200] or type(error).__name__})."
    if isinstance(error, UserError | OSError):
        return str(error) or type(error).__name__
    return None


class Tally:
    """Counts failures by their reason."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def is_hopeless(self, reason: str) -> bool:
        """Whether this failure is the third of its kind: then the plan is wrong, and not a stage."""
        self._reasons[reason] += 1
        return self._reasons[reason] >= _SAME


def check_endings(graph: Sequence[Stage], endings: Mapping[str, Ending], hint: str = "") -> None:
    """Tell all failures at once, and `hint` behind them.

    Raises:
        UserError: A stage failed.
    """
    labels = {stage.key: stage.label for stage in graph}
    failed = [(labels[key], ending) for key, ending in endings.items() if ending.state == "failed"]
    if not failed:
        return
    parts = [_told(label, ending) for label, ending in failed[:_TOLD]]
    parts += [f"{label}: {ending.log}" for label, ending in failed[_TOLD:]]
    states = Counter(ending.state for ending in endings.values())
    if kept := states["done"]:
        parts.append(f"{_stages(kept)} ended well and {'is' if kept == 1 else 'are'} kept.")
    if left := states["skipped"] + states["stopped"]:
        parts.append(f"{_stages(left)} {'was' if left == 1 else 'were'} not done.")
    parts += [hint] if hint else []
    raise UserError("\n".join(parts))


def _told(label: str, ending: Ending) -> str:
    return f"{label}: {ending.text}" + (f"\nIts log: {ending.log}" if ending.log else "")


def _stages(number: int) -> str:
    return f"{number} stage{'s' * (number > 1)}"
