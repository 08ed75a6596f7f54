"""When a head gains and loses a role; the chance level for sets of heads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import hypergeom

from infoflow.foundation import UserError

from ._crossings import checked_curve


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleEvent:
    """A birth or a death, somewhere in (before, after]."""

    before: int
    after: int
    open: bool = False  # seen only at the last checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleEvents:
    """Events of one head and one role."""

    initial: bool | None  # held before training; None without step 0
    births: tuple[RoleEvent, ...]
    deaths: tuple[RoleEvent, ...]
    flickers: int  # changes of state that were not events


def role_events(steps: ArrayLike, held: ArrayLike) -> RoleEvents:
    """Births and deaths of a head's role.

    A birth is the first of two consecutive checkpoints with the role, a death the first of two without it; at the last
    checkpoint a single one counts too, as `open`.

    Args:
        steps: Ascending.
        held: Whether the head has the role, at each step.

    >>> role_events([0, 1, 2, 4, 8, 16], [0, 1, 0, 0, 1, 1]).births
    (RoleEvent(before=4, after=8, open=False),)
    """
    times, _ = checked_curve(steps, np.asarray(held, dtype=np.float64))
    states = np.asarray(held, dtype=bool)
    now = bool(states[0])
    events: dict[bool, list[RoleEvent]] = {True: [], False: []}
    last = len(states) - 1
    for at in range(1, len(states)):
        new = bool(states[at])
        if new != now and (at == last or bool(states[at + 1]) == new):
            before, after = int(times[at - 1]), int(times[at])
            events[new].append(RoleEvent(before=before, after=after, open=at == last))
            now = new
    changes = int((states[1:] != states[:-1]).sum())
    num_events = len(events[True]) + len(events[False])
    return RoleEvents(
        initial=bool(states[0]) if times[0] == 0 else None,
        births=tuple(events[True]),
        deaths=tuple(events[False]),
        flickers=changes - num_events,
    )


def expected_jaccard(heads: int, a: int, b: int) -> float:
    r"""Expected \(|A \cap B| / |A \cup B|\) of random sets of `a` and `b` of `heads` heads; NaN of two empty ones.

    $$ \sum_k \frac{k}{a + b - k} \mathrm{hypergeom}(k; H, a, b) $$

    Raises:
        UserError: A set is larger than the number of heads.

    >>> round(expected_jaccard(48, 6, 6), 4)
    0.072
    """
    if not (0 <= a <= heads and 0 <= b <= heads):
        raise UserError(f"Sets of heads have from 0 to {heads} members. Got {a} and {b}.")
    if a + b == 0:
        return float("nan")
    common = np.arange(max(0, a + b - heads), min(a, b) + 1)
    return float((common / (a + b - common) * hypergeom.pmf(common, heads, a, b)).sum())
