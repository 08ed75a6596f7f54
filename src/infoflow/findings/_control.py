"""Runs a claim's test where the claim should not show."""

from dataclasses import dataclass, replace

import numpy as np

from infoflow.results import Samples

from ._condition import Condition, Outcome, judge_all, short
from ._finding import Control, Finding
from ._model_group import Absent, ModelGroup
from ._resampled import resampled_curves
from ._table import gather
from ._too_few import TooFew, too_few_orders

_NULL_LEVEL = 0.95
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlOutcome:
    """Result of a control for the claim's deciding condition."""

    name: str
    value: float
    unit: str
    shows_claim: bool
    decisive: bool
    missing: str = ""  # why it was not measured
    too_few: TooFew | None = None  # why it shows the claim regardless of the claim's numbers

    def __str__(self) -> str:
        role = "control" if self.decisive else "for comparison"
        if self.missing:
            return f"{role}, {self.name}: not measured ({self.missing})"
        return (
            f"{role}, {self.name}: {short(self.value)} {self.unit}{', shows the claim too' if self.shows_claim else ''}"
        )


def try_control(
    control: Control, finding: Finding, models: ModelGroup, seeds: set[int], deciding: Outcome, index: int
) -> ControlOutcome:
    """Run the test on the control's curves; `deciding` is the claim's condition number `index`.

    A control shows the claim if it meets every condition, or the deciding one by itself (`_meets_alone`); with many
    replicas, if more than 5 % do. Replicas of each seed's numbers must meet every condition, and the deciding one at
    least as clearly as the claim; so must permutations of the claim's own numbers.
    """
    try:
        found = gather(control.reads, models, within=seeds)
        conditions, weights = _conditions(control, finding, found)
    except Absent as absent:
        return ControlOutcome(
            name=control.name, value=np.nan, unit="", shows_claim=False, decisive=control.decisive, missing=str(absent)
        )
    own, shows = conditions[index], np.logical_and.reduce([condition.met() for condition in conditions])
    if control.replicas:
        shows = shows & (_farthest(own) >= _farthest(deciding.condition)[0])
    else:
        shows = shows | (own.met() & _meets_alone(own, deciding))
    if control.permuted:
        shows = shows & (_farthest(own) >= _farthest(deciding.condition)[0] - _ROUNDING)
    if own.threshold == 0 and len(shows) == 1 and shows.any():
        shows = shows & _beyond_chance(control, finding, found, index)
    return ControlOutcome(
        name=control.name,
        value=_strongest(own, weights),
        unit=deciding.condition.unit,
        shows_claim=bool(np.average(shows, weights=weights) > 1 - _NULL_LEVEL + 1e-9),
        decisive=control.decisive,
        too_few=_too_few(control, found),
    )


def _too_few(control: Control, found: dict[str, Samples]) -> TooFew | None:
    if control.permuted is None:
        return None
    what, count = control.permuted
    return too_few_orders(what, count({name: one.mean() for name, one in found.items()}), 1 - _NULL_LEVEL)


def _conditions(
    control: Control, finding: Finding, found: dict[str, Samples]
) -> tuple[list[Condition], np.ndarray | None]:
    """The claim's conditions on the control's curves, with one row per replica, and the weights of the rows."""
    curves = {name: one.mean() for name, one in found.items()}
    if control.replicas is None:
        return finding.conditions(control.transform(curves) if control.transform else curves), None
    # One by one: a claim may select by the estimate, which is the first row.
    drawn, weights = zip(*control.replicas(found), strict=True)
    each = [finding.conditions(curves | replica) for replica in drawn]
    rows = [np.concatenate([one.values for one in alike]) for alike in zip(*each, strict=True)]
    return [replace(one, values=values) for one, values in zip(each[0], rows, strict=True)], np.array(weights)


def _meets_alone(own: Condition, deciding: Outcome) -> bool:
    """Whether meeting the deciding condition by itself would count.

    It does not if the condition counts only with others (`Condition.alone`), or if the control leaves the condition
    unchanged, so that it is the claim's own number.
    """
    claimed = deciding.condition.values[0]
    same = own.values.shape[1:] == claimed.shape and np.array_equal(own.values[0], claimed, equal_nan=True)
    return own.alone and not (same and len(own.values) == 1)


def _beyond_chance(control: Control, finding: Finding, found: dict[str, Samples], index: int) -> bool:
    """Whether the control's own interval lies beyond a threshold of 0, which half of all noise passes.

    True without replicates, or if the control transforms only the estimates: then there is no interval, and the
    estimate counts.
    """
    if min(one.num_replicates for one in found.values()) < 2:
        return True
    seeds = sorted(set.intersection(*(one.seeds for one in found.values())))
    curves, rows = resampled_curves(found, seeds)
    num = len(next(iter(curves.values())))
    conditions = finding.conditions(control.transform(curves) if control.transform else curves)
    if any(len(one.values) != num for one in conditions):
        return True
    return judge_all(conditions, rows)[index].verdict == "holds"


def strongest(controls: list[ControlOutcome], side: str) -> ControlOutcome | None:
    """The decisive control that comes closest to the claim; None if none was measured."""
    measured = [control for control in controls if control.decisive and not control.missing]
    sign = 1 if side == "above" else -1
    return max(measured, key=lambda c: (c.shows_claim, np.nan_to_num(sign * c.value, nan=-np.inf)), default=None)


def _strongest(condition: Condition, weights: np.ndarray | None) -> float:
    """The condition's effect: that of a single row, or the 95 % quantile of many replicas towards the claim."""
    sign = 1 if condition.side == "above" else -1
    effects = _farthest(condition)
    strongest = np.quantile(effects, _NULL_LEVEL, method="inverted_cdf", weights=weights)
    return float(sign * strongest + condition.threshold)


def _farthest(condition: Condition) -> np.ndarray:
    """Distance of each row beyond the threshold, in its weakest column or, for a claim on any, its strongest."""
    return np.min(condition.oriented, axis=1) if condition.over == "all" else np.fmax.reduce(condition.oriented, axis=1)
