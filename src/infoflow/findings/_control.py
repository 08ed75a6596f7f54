"""Controls: a claim's test on curves without the effect, some of them made from the claim's own training runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations, product
from math import perm

import numpy as np

from infoflow.foundation import stream
from infoflow.results import Samples

from ._finding import Condition, Control, Finding, Outcome, judge_all, short
from ._interval import resampled_curves
from ._model_group import Absent, ModelGroup
from ._no_verdict import TooFew, too_few_orders
from ._table import Reading, gather

# Controls made from a claim's own training runs: variation between seeds, and layers in random order.
#
# A difference between objectives means something only if it exceeds the difference between seeds. These controls run
# the same test on training runs of one objective, with seeds in place of objectives, and, for claims about specific
# layers, on layers permuted in every training run. Both produce many replicas.

_MOST, _NUM_ORDERS = 400, 400

Side = Mapping[str, str]
"""Maps the name of each reading on one side to the quantity that it measures."""
Draws = Iterator[tuple[dict[str, np.ndarray], float]]
"""The curves of each replica, with its weight."""


def seeds_alone(reads: Mapping[str, Reading], *sides: Side | tuple[str, ...] | str) -> Control:
    """Return a control in which the runs of one objective stand in for all sides: each side gets different seeds.

    Claims compare means over S seeds, so the deviation of each seed from its objective's mean is divided by √S, which
    gives it the spread of such a mean. All objectives or readings that can stand in have equal weight.

    Args:
        reads: The readings of the claim.
        sides: What the claim compares. A side is given by the names of its readings or, if they measure several
            quantities, by a mapping from name to quantity. Numbers of the same quantity are interchangeable. There must
            be at least as many seeds as sides.

    Raises:
        ValueError: A side names an unknown reading.
    """
    named: list[Side] = [
        side if isinstance(side, Mapping) else dict.fromkeys([side] if isinstance(side, str) else side, "")
        for side in sides
    ]
    if unknown := {name for side in named for name in side} - set(reads):
        raise ValueError(f"sides must name readings ({', '.join(reads)}). Got {', '.join(sorted(unknown))}.")
    return Control("training runs that differ only in their seed", reads, replicas=partial(_by_seed, sides=named))


def layers_in_any_order(reads: Mapping[str, Reading], *, numbers: int = 1) -> Control:
    """Return a control that permutes the layers at random in every run; curves have `numbers` columns per layer.

    Nothing is measured if there are so few layers and seeds that, in 5 % of the draws or more, a layer has the same
    place in all training runs.
    """
    return Control(
        "layers in random order, drawn for each training run", reads, replicas=partial(_reordered, numbers=numbers)
    )


def _by_seed(found: Mapping[str, Samples], sides: list[Side]) -> Draws:
    """Yield up to `_MOST` replicas per choice of `_sources`; each side gets its own training run or pair of runs."""
    sources = [
        source
        for source in _sources(sides)
        if len({found[name].units for name in source.values()}) == 1 and _size(found, source) >= len(sides)
    ]
    if not sources:
        raise Absent(f"it needs {len(sides)} training runs of one objective")
    for source in sources:
        own = {what: _around_mean(found[name]) for what, name in source.items()}
        draws = _orders(_size(found, source), len(sides))
        for rows in draws:
            drawn = {
                name: own[what][[row]] for side, row in zip(sides, rows, strict=True) for name, what in side.items()
            }
            yield drawn, 1 / (len(sources) * len(draws))


def _sources(sides: list[Side]) -> Iterator[dict[str, str]]:
    """Yield the readings that can stand in for all others: one reading per quantity, all from the same side."""
    measured = sorted({what for side in sides for what in side.values()})
    for side in sides:
        alternatives = [[name for name, what in side.items() if what == one] for one in measured]
        yield from (dict(zip(measured, names, strict=True)) for names in product(*alternatives))


def _size(found: Mapping[str, Samples], source: dict[str, str]) -> int:
    return len(found[next(iter(source.values()))].units)


def _orders(size: int, places: int) -> list[tuple[int, ...]]:
    if perm(size, places) <= _MOST:
        return list(permutations(range(size), places))
    rng = stream("findings", "seeds alone", size, places)
    return [tuple(rng.permutation(size)[:places].tolist()) for _ in range(_MOST)]


def _around_mean(one: Samples) -> np.ndarray:
    """The numbers of each seed or pair, (U, K), with deviations from their mean divided by the root of U."""
    mean_1K = one.mean()
    return mean_1K + (one.values_UK - mean_1K) / np.sqrt(len(one.seeds))


def _reordered(found: Mapping[str, Samples], numbers: int) -> Draws:
    alike = {name: (one.values_UK.shape[1] // numbers) ** (len(one.units) - 1) for name, one in found.items()}
    if min(alike.values()) <= 20:
        layers = min(one.values_UK.shape[1] // numbers for one in found.values())
        trainings = min(len(one.units) for one in found.values())
        raise Absent(
            f"too few layers and training runs ({layers} and {trainings}): by chance alone, a layer has the same "
            "place in all of them at least once in twenty draws"
        )
    draws = {name: stream("findings", "layers in any order", name) for name in found}
    for _ in range(_NUM_ORDERS):
        yield {name: _mean_in_any_order(one, numbers, draws[name]) for name, one in found.items()}, 1 / _NUM_ORDERS


def _mean_in_any_order(one: Samples, numbers: int, rng: np.random.Generator) -> np.ndarray:
    by_layer_ULK = one.values_UK.reshape(len(one.units), -1, numbers)
    moved = [layers[rng.permutation(len(layers))].ravel() for layers in by_layer_ULK]
    return np.mean(moved, axis=0, keepdims=True)


_NULL_LEVEL = 0.95
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlOutcome:
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
        also = ", which satisfies the claim too" if self.shows_claim else ""
        return f"{role}, {self.name}: {short(self.value)} {self.unit}{also}"


def try_control(
    control: Control, finding: Finding, models: ModelGroup, seeds: set[int], deciding: Outcome, index: int
) -> ControlOutcome:
    """Run the test on the control's curves; `deciding` is the claim's condition number `index`.

    A control shows the effect if it meets every condition, or only the deciding one if that counts by itself
    (`_meets_alone`). With many replicas, more than 5 % of them must do so. Replicas of each seed's numbers must meet
    every condition. These replicas and permutations must also meet the deciding one at least as clearly as the claim.
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
    # Replicas are tested one by one, because a claim may select by the estimate, which is the first row.
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
    """Whether the control's own interval excludes a threshold of 0, which noise passes half of the time.

    True if there is no interval (no replicates, or only the estimates were transformed), because the estimate counts
    in that case.
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
    measured = [control for control in controls if control.decisive and not control.missing]
    sign = 1 if side == "above" else -1
    return max(measured, key=lambda c: (c.shows_claim, np.nan_to_num(sign * c.value, nan=-np.inf)), default=None)


def _strongest(condition: Condition, weights: np.ndarray | None) -> float:
    """The effect of a single row, or the 95 % quantile over many replicas in the claim's direction."""
    sign = 1 if condition.side == "above" else -1
    effects = _farthest(condition)
    strongest = np.quantile(effects, _NULL_LEVEL, method="inverted_cdf", weights=weights)
    return float(sign * strongest + condition.threshold)


def _farthest(condition: Condition) -> np.ndarray:
    """Distance of each row beyond the threshold in its weakest column, or its strongest for a claim on any column."""
    return np.min(condition.oriented, axis=1) if condition.over == "all" else np.fmax.reduce(condition.oriented, axis=1)
