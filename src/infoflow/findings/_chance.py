"""Controls made from a claim's own trainings: variation between seeds, and layers in random order.

For a meaningful claim, two objectives differ by more than their seeds. These controls run the same test on trainings of
one objective, with seeds in place of objectives; and, for claims about specific layers, on layers permuted in every
training. Both produce many replicas (`infoflow.findings._control`).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import permutations, product
from math import perm

import numpy as np

from infoflow.foundation import stream
from infoflow.results import Samples

from ._finding import Control
from ._model_group import Absent
from ._table import Reading

_MOST, _NUM_ORDERS = 400, 400

Side = Mapping[str, str]
"""The readings of single trainings, and what each one measures."""
Draws = Iterator[tuple[dict[str, np.ndarray], float]]
"""Curves of replicas, with the weight of each."""


def seeds_alone(reads: Mapping[str, Reading], *sides: Side | tuple[str, ...] | str) -> Control:
    """Trainings of one objective in place of several: each side of the claim gets its own seeds.

    Claims compare means over S seeds, and so do these sides: the deviation of a seed from its objective's mean is
    divided by √S, as in a mean over S seeds. Every reading that can represent all has the same weight.

    Args:
        reads: The readings of the claim.
        sides: What the claim compares: the names of the readings of one side or, if they measure several quantities,
            the quantity of each. Numbers of the same quantity are interchangeable. There must be as many seeds as
            sides.

    Raises:
        ValueError: A side names an unknown reading.
    """
    named: list[Side] = [
        side if isinstance(side, Mapping) else dict.fromkeys([side] if isinstance(side, str) else side, "")
        for side in sides
    ]
    if unknown := {name for side in named for name in side} - set(reads):
        raise ValueError(f"sides must name readings ({', '.join(reads)}). Got {', '.join(sorted(unknown))}.")
    return Control(
        name="trainings that differ by their seed alone", reads=reads, replicas=partial(_by_seed, sides=named)
    )


def layers_in_any_order(reads: Mapping[str, Reading], *, numbers: int = 1) -> Control:
    """Layers permuted at random in every training; a curve has `numbers` numbers per layer.

    With few layers and seeds, all trainings share an order by chance in more than 5 % of the draws; then nothing is
    measured.
    """
    return Control(
        name="layers in any order, drawn for each training", reads=reads, replicas=partial(_reordered, numbers=numbers)
    )


def _by_seed(found: Mapping[str, Samples], sides: list[Side]) -> Draws:
    """For every source the distinct trainings (or pairs of them) for each side; at most `_MOST` of each."""
    sources = [
        source
        for source in _sources(sides)
        if len({found[name].units for name in source.values()}) == 1 and _size(found, source) >= len(sides)
    ]
    if not sources:
        raise Absent(f"it takes {len(sides)} trainings of one objective")
    for source in sources:
        own = {what: _around_mean(found[name]) for what, name in source.items()}
        draws = _orders(_size(found, source), len(sides))
        for rows in draws:
            drawn = {
                name: own[what][[row]] for side, row in zip(sides, rows, strict=True) for name, what in side.items()
            }
            yield drawn, 1 / (len(sources) * len(draws))


def _sources(sides: list[Side]) -> Iterator[dict[str, str]]:
    """The readings that replace all others: one side's, one for each quantity."""
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
    """The numbers of each unit, shrunk to the deviation of a mean over all seeds, (U, K)."""
    mean_1K = one.mean()
    return mean_1K + (one.values_UK - mean_1K) / np.sqrt(len(one.seeds))


def _reordered(found: Mapping[str, Samples], numbers: int) -> Draws:
    alike = {name: (one.values_UK.shape[1] // numbers) ** (len(one.units) - 1) for name, one in found.items()}
    if min(alike.values()) <= 20:
        layers = min(one.values_UK.shape[1] // numbers for one in found.values())
        trainings = min(len(one.units) for one in found.values())
        raise Absent(
            f"too few layers and trainings ({layers} and {trainings}): chance alone puts them into the same order more "
            "often than once in twenty draws"
        )
    draws = {name: stream("findings", "layers in any order", name) for name in found}
    for _ in range(_NUM_ORDERS):
        yield {name: _mean_in_any_order(one, numbers, draws[name]) for name, one in found.items()}, 1 / _NUM_ORDERS


def _mean_in_any_order(one: Samples, numbers: int, rng: np.random.Generator) -> np.ndarray:
    by_layer_ULK = one.values_UK.reshape(len(one.units), -1, numbers)
    moved = [layers[rng.permutation(len(layers))].ravel() for layers in by_layer_ULK]
    return np.mean(moved, axis=0, keepdims=True)
