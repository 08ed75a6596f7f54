"""Readings of the table `phases`: whether curves over training change together, and when.

Times are bounds for curves that began to change before the first checkpoint or still change at the last.
"""

import numpy as np
import pandas as pd

from infoflow.findings._bounded_times import EXACT, Bound, Reach, limit, of_difference, of_distance
from infoflow.findings._model_group import Absent
from infoflow.findings._table import Reading, SeedRows, Table, exact, together
from infoflow.results import Spec

from ..measures import IN_CONTEXT_LEARNING, PHASES

INDUCTION_CURVE = "induction, best head"
FIRST_TOKEN_CURVE = "attention to the first token, mean of heads"
GAIN = "repeat_gain"
"""The gain from context that short sentences can show."""


def at_once(objective: Spec, gain: str, other: str = INDUCTION_CURVE) -> Reading:
    """Whether both curves of `phases` change abruptly (1 or 0), the doublings between their middles, and both reaches.

    The sharpness of a change that began earlier or is not over is unknown.
    """
    return _phases(objective).reduce(_at_once, gain=gain, other=other)


def doublings_between(objective: Spec, first: str, second: str) -> Reading:
    """How many doublings the middle of one curve of `phases` lies after that of another, and the reach."""
    return _phases(objective).reduce(_doublings, first=first, second=second)


def gain_within(objective: Spec, *, elsewhere: bool = False) -> Reading:
    """Share of the change of the gain that falls between t10 and t90 of induction, and its reach.

    With `elsewhere`, the largest share in any window of as many doublings that does not overlap that one.
    """
    phases = _phases(objective, "t10", "t90")
    gains = Table(IN_CONTEXT_LEARNING.at_checkpoints, objective, needs=("update", "measure"), course=True)
    return together(_gain_within, phases, gains.where(measure=GAIN), elsewhere=elsewhere)


def _curve_of(rows: SeedRows, name: str) -> pd.Series:
    own = rows.frame[rows.frame["curve"] == name]
    if len(own) != 1 or not np.isfinite(own[rows.number].iloc[0]):
        raise Absent(f"{name} does not change over training, or was not measured at eight checkpoints")
    return own.iloc[0]


def bound_of_phase(row: pd.Series) -> Bound:
    """Whether the times of a curve of `phases` are bounds."""
    began = row["verdict"] == "started before" or row.get("t10_before", np.nan) == 0
    return Bound(earlier=bool(began), later=row["verdict"] == "unfinished")


def sharpness(*verdicts: str) -> tuple[float, Reach]:
    """1 if all of these verdicts are "abrupt", else 0; and whether it might be 1 if they are inconclusive."""
    abrupt = all(one == "abrupt" for one in verdicts)
    known = abrupt or "gradual" in verdicts
    return float(abrupt), (0.0, float(not known))


def _phases(objective: Spec, *needs: str) -> Table:
    return Table(PHASES.name, objective, needs=("curve", "verdict", *needs), number="t50")


def _at_once(rows: SeedRows, gain: str, other: str) -> np.ndarray:
    one, two = _curve_of(rows, gain), _curve_of(rows, other)
    abrupt, perhaps = sharpness(one["verdict"], two["verdict"])
    apart = float(np.log2(one["t50"] / two["t50"]))
    reach = of_distance(apart, of_difference(bound_of_phase(one), bound_of_phase(two)))
    return exact([abrupt, abs(apart), *perhaps, *reach])


def _doublings(rows: SeedRows, first: str, second: str) -> np.ndarray:
    one, two = _curve_of(rows, first), _curve_of(rows, second)
    return exact([np.log2(two["t50"] / one["t50"]), *of_difference(bound_of_phase(two), bound_of_phase(one))])


def _gain_within(phases: SeedRows, gains: SeedRows, elsewhere: bool) -> np.ndarray:
    found = _curve_of(phases, INDUCTION_CURVE)
    curve = gains.frame[gains.frame["update"] > 0].sort_values("update")
    logs, values = np.log2(curve["update"].to_numpy(float)), curve[gains.number].to_numpy(float)
    low, high = np.log2(found["t10"]), np.log2(found["t90"])

    def share(start: float) -> float:
        ends = np.interp([start, start + high - low], logs, values)
        return float((ends[1] - ends[0]) / (values[-1] - values[0]))

    if not elsewhere:
        return exact([share(low), *_reach_of_share(share(low), phases, bound_of_phase(found))])
    starts = np.linspace(logs[0], logs[-1] - (high - low), 200) if logs[-1] - logs[0] > high - low else np.array([])
    others = [share(start) for start in starts if start + high - low <= low or start >= high]
    if not others:
        raise Absent("no window as wide lies outside the one of induction")
    return exact([max(others), *EXACT])


def _reach_of_share(share: float, phases: SeedRows, window: Bound) -> Reach:
    """Reach of the share of the gain's change that falls into a window.

    A window whose ends are bounds may contain any share. If the gain began earlier or continues, its total change is
    larger than observed, and the share of the window smaller.
    """
    if window.earlier or window.later:
        return limit(True), limit(True)
    gain = phases.frame[phases.frame["curve"] == GAIN]
    bounds = [bound_of_phase(row) for _, row in gain.iterrows()]
    return (max(share, 0.0) if any(one.earlier or one.later for one in bounds) else 0.0), 0.0
