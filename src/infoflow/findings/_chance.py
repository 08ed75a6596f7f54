"""Controls made of a claim's own trainings: what seeds alone do, and what layers do in any order.

Two objectives differ by more than their seeds where a claim about them means something. The same test is made on
trainings of one objective, each seed in the place of an objective; and, of claims about which layers, on layers whose
order is drawn anew in every training. Both give many replicas (`infoflow.findings._control`).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import permutations, product
from math import perm

import numpy as np

from infoflow.foundation import stream

from ._estimates import Estimates
from ._finding import Control
from ._model_group import Absent
from ._table import Reading

_MOST, _NUM_ORDERS = 400, 400

Side = Mapping[str, str]
"""The readings that are of one training each, and what each one measures."""
Draws = Iterator[tuple[dict[str, np.ndarray], float]]
"""Curves of replicas, and the weight of each among all."""


def seeds_alone(reads: Mapping[str, Reading], *sides: Side | tuple[str, ...] | str) -> Control:
    """Trainings of one objective in place of several: each side of the claim gets seeds of its own.

    A claim is about means over S seeds, and so are its sides here: what a seed differs by from the mean of its
    objective is divided by √S, as in the mean of so many. Each reading that can stand for all has the same weight.

    Args:
        reads: The readings of the claim.
        sides: What the claim sets against each other: the names of the readings of one side, or, where they measure
            several things, what each one measures. Numbers that measure the same take each other's place. It takes as
            many seeds as there are sides.

    Raises:
        ValueError: A side names what is not read.
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
    """The layers of every training in an order of its own, drawn at random; a layer has so many numbers of a curve.

    With few layers and seeds all trainings have the same order by chance in more than 5 % of the draws: then nothing is
    measured.
    """
    return Control(
        name="layers in any order, drawn for each training", reads=reads, replicas=partial(_reordered, numbers=numbers)
    )


def _by_seed(found: Mapping[str, Estimates], sides: list[Side]) -> Draws:
    """Of every source the trainings (or pairs of them) for each side, all different; at most `_MOST` of each."""
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
    """The readings that take the place of all: of one side, one for everything that is measured."""
    measured = sorted({what for side in sides for what in side.values()})
    for side in sides:
        alternatives = [[name for name, what in side.items() if what == one] for one in measured]
        yield from (dict(zip(measured, names, strict=True)) for names in product(*alternatives))


def _size(found: Mapping[str, Estimates], source: dict[str, str]) -> int:
    return len(found[next(iter(source.values()))].units)


def _orders(size: int, places: int) -> list[tuple[int, ...]]:
    if perm(size, places) <= _MOST:
        return list(permutations(range(size), places))
    rng = stream("findings", "seeds alone", size, places)
    return [tuple(rng.permutation(size)[:places].tolist()) for _ in range(_MOST)]


def _around_mean(one: Estimates) -> np.ndarray:
    """Each unit's numbers as the mean over so many seeds would lie, (U, K)."""
    mean_1K = one.estimate()
    return mean_1K + (one.values_UK - mean_1K) / np.sqrt(len(one.seeds))


def _reordered(found: Mapping[str, Estimates], numbers: int) -> Draws:
    alike = {name: (one.values_UK.shape[1] // numbers) ** (len(one.units) - 1) for name, one in found.items()}
    if min(alike.values()) <= 20:
        raise Absent("so few layers and trainings are in the same order by chance in one of twenty draws")
    draws = {name: stream("findings", "layers in any order", name) for name in found}
    for _ in range(_NUM_ORDERS):
        yield {name: _mean_in_any_order(one, numbers, draws[name]) for name, one in found.items()}, 1 / _NUM_ORDERS


def _mean_in_any_order(one: Estimates, numbers: int, rng: np.random.Generator) -> np.ndarray:
    by_layer_ULK = one.values_UK.reshape(len(one.units), -1, numbers)
    moved = [layers[rng.permutation(len(layers))].ravel() for layers in by_layer_ULK]
    return np.mean(moved, axis=0, keepdims=True)
