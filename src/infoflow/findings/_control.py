"""A claim's test where the claim should not show."""

from dataclasses import dataclass, replace

import numpy as np

from ._condition import Condition, Outcome, judge_all, short
from ._estimates import Estimates
from ._finding import Control, Finding
from ._model_group import Absent, ModelGroup
from ._resampled import resampled_curves
from ._table import gather

_NULL_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlOutcome:
    """What a control gave, in the terms of the condition that decided the claim."""

    name: str
    value: float
    unit: str
    shows_claim: bool
    decisive: bool
    missing: str = ""  # why it was not measured

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

    A control shows the claim when it meets every condition, or the deciding one by itself (`_meets_alone`); of many
    replicas, when more than 5 % do. Replicas of each seed's numbers must meet every condition, the deciding one by no
    less than the claim.
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
    if own.threshold == 0 and len(shows) == 1 and shows.any():
        shows = shows & _beyond_chance(control, finding, found, index)
    return ControlOutcome(
        name=control.name,
        value=_strongest(own, weights),
        unit=deciding.condition.unit,
        shows_claim=bool(np.average(shows, weights=weights) > 1 - _NULL_LEVEL + 1e-9),
        decisive=control.decisive,
    )


def _conditions(
    control: Control, finding: Finding, found: dict[str, Estimates]
) -> tuple[list[Condition], np.ndarray | None]:
    """The claim's conditions on the control's curves, a row for each of its replicas, and what each row weighs."""
    curves = {name: one.estimate() for name, one in found.items()}
    if control.replicas is None:
        return finding.conditions(control.transform(curves) if control.transform else curves), None
    # One by one: a claim may choose by the estimate, which is the first row.
    drawn, weights = zip(*control.replicas(found), strict=True)
    each = [finding.conditions(curves | replica) for replica in drawn]
    rows = [np.concatenate([one.values for one in alike]) for alike in zip(*each, strict=True)]
    return [replace(one, values=values) for one, values in zip(each[0], rows, strict=True)], np.array(weights)


def _meets_alone(own: Condition, deciding: Outcome) -> bool:
    """Whether meeting the deciding condition by itself would count.

    Not for a condition that only counts with others (`Condition.alone`), and not where the control leaves the
    condition as it is: then it is the claim's own number.
    """
    claimed = deciding.condition.values[0]
    same = own.values.shape[1:] == claimed.shape and np.array_equal(own.values[0], claimed, equal_nan=True)
    return own.alone and not (same and len(own.values) == 1)


def _beyond_chance(control: Control, finding: Finding, found: dict[str, Estimates], index: int) -> bool:
    """Whether the control's own interval lies beyond a threshold of 0, which half of all noise passes.

    True without replicates, or where the control is a transformation of the estimates alone: then there is no interval,
    and the estimate counts.
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
    """The decisive control that comes closest to the claim; None where no decisive control was measured."""
    measured = [control for control in controls if control.decisive and not control.missing]
    sign = 1 if side == "above" else -1
    return max(measured, key=lambda c: (c.shows_claim, np.nan_to_num(sign * c.value, nan=-np.inf)), default=None)


def _strongest(condition: Condition, weights: np.ndarray | None) -> float:
    """The condition's effect: of one row itself, of many replicas the 95 % quantile towards the claim."""
    sign = 1 if condition.side == "above" else -1
    effects = _farthest(condition)
    strongest = np.quantile(effects, _NULL_LEVEL, method="inverted_cdf", weights=weights)
    return float(sign * strongest + condition.threshold)


def _farthest(condition: Condition) -> np.ndarray:
    """Of each row how far it lies beyond the threshold: in its weakest column, of a claim on any in its strongest."""
    return np.min(condition.oriented, axis=1) if condition.over == "all" else np.fmax.reduce(condition.oriented, axis=1)
