"""Cases with too few runs, heads or tasks for any verdict.

A share of few things has a wide interval even if all agree, and so has a value read off few checkpoints: no number can
then lie clear of the threshold. Likewise, few layers are often in the claimed order by chance.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import factorial
from typing import Literal

from ._condition import MOST_THINGS, Condition, Outcome, wilson

Side = Literal["hold", "fail"]


@dataclass(frozen=True, slots=True)
class TooFew:
    """A verdict that is impossible with the measurements, and the requirement for it."""

    to: Side
    what: str  # what is too few
    least: int | None  # how many are needed; None: no number suffices
    there: int
    seeds: int = 1  # the units over which they are counted

    def __str__(self) -> str:
        needed = f"it needs at least {self.least}" if self.least else f"no number up to {MOST_THINGS:,} would do"
        counted = f" in {self.seeds} seeds" if 1 < self.seeds < self.there else ""
        there = f"there {'is' if self.there == 1 else 'are'} {self.there}{counted}"
        return f"too few {self.what}: to {self.to} {needed}{' of them' if counted else ''}, and {there}"


def too_few(outcomes: Iterable[Outcome], num_seeds: int) -> list[TooFew]:
    """What prevents a claim from holding, whatever its numbers, and from failing.

    A claim holds by all of its conditions and fails by any of them.
    """
    conditions = [outcome.condition for outcome in outcomes]
    failing = [_short_of(one, "fail", num_seeds) for one in conditions]
    found = [_short_of(one, "hold", num_seeds) for one in conditions] + (failing[:1] if all(failing) else [])
    return [few for few in found if few]


def too_few_orders(what: str, there: int, level: float) -> TooFew | None:
    """Whether so few orders exist that chance produces the claimed one more often than `level`."""
    least = next(number for number in range(1, 100) if 1 / factorial(number) <= level)
    return TooFew("hold", what, least, there) if there < least else None


def _short_of(condition: Condition, to: Side, num_seeds: int) -> TooFew | None:
    """Why a condition cannot be clearly met, or clearly missed."""
    upwards = (condition.side == "above") == (to == "hold")
    if condition.of:
        there, best = condition.of * num_seeds, 1.0 if upwards else 0.0
        counts = range(there, MOST_THINGS + 1)
        least = next((num for num in counts if _clear(wilson(best, num), condition.threshold, upwards)), None)
        return None if least == there else TooFew(to, condition.counted, least, there, num_seeds)
    if condition.step and condition.bounds:
        best, span = condition.bounds[upwards], condition.bounds[1] - condition.bounds[0]
        if not _clear((best - condition.step, best + condition.step), condition.threshold, upwards):
            least = int(span / abs(best - condition.threshold)) + 1
            return TooFew(to, condition.counted, least, round(span / condition.step))
    return None


def _clear(ends: tuple[float, float], threshold: float, upwards: bool) -> bool:
    return ends[0] > threshold if upwards else ends[1] < threshold
