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

_MOST, _NUM_ORDERS = 1000, 400

Side = Mapping[str, str]
"""The readings that are of one training each, and what each one measures."""


def seeds_alone(reads: Mapping[str, Reading], *sides: Side | tuple[str, ...]) -> Control:
    """Trainings of one objective in place of several: each side of the claim gets a seed of its own.

    Args:
        reads: The readings of the claim.
        sides: What the claim sets against each other: the names of the readings of one side, or, where they measure
            several things, what each one measures. Numbers that measure the same take each other's place.
    """
    named: list[Side] = [side if isinstance(side, Mapping) else dict.fromkeys(side, "") for side in sides]
    return Control(
        name="trainings that differ by their seed alone", reads=reads, replicas=partial(_by_seed, sides=named)
    )


def layers_in_any_order(reads: Mapping[str, Reading], *, numbers: int = 1) -> Control:
    """The layers of every training in an order of its own, drawn at random; a layer has so many numbers of a curve."""
    return Control(
        name="layers in any order, drawn for each training", reads=reads, replicas=partial(_reordered, numbers=numbers)
    )


def _by_seed(found: Mapping[str, Estimates], sides: list[Side]) -> Iterator[dict[str, np.ndarray]]:
    """Every choice of a reading and of a training (or a pair of them) for each side, all different; at most `_MOST`."""
    sources = [source for source in _sources(sides) if len({found[name].units for name in source.values()}) == 1]
    sizes = [len(found[next(iter(source.values()))].units) for source in sources]
    counts = [perm(size, len(sides)) for size in sizes]
    if not sum(counts):
        raise Absent(f"it takes {len(sides)} trainings of one objective")
    if sum(counts) <= _MOST:
        orders = zip(sources, [permutations(range(size), len(sides)) for size in sizes], strict=True)
        draws = [(source, rows) for source, each in orders for rows in each]
    else:
        rng = stream("findings", "seeds alone", sum(counts))
        chosen = rng.choice(len(sources), _MOST, p=np.array(counts) / sum(counts))
        draws = [(sources[one], rng.permutation(sizes[one])[: len(sides)]) for one in chosen]
    for source, rows in draws:
        yield {
            name: found[source[what]].values_UK[[row]]
            for side, row in zip(sides, rows, strict=True)
            for name, what in side.items()
        }


def _sources(sides: list[Side]) -> Iterator[dict[str, str]]:
    """The readings that take the place of all: of one side, one for everything that is measured."""
    measured = sorted({what for side in sides for what in side.values()})
    for side in sides:
        alternatives = [[name for name, what in side.items() if what == one] for one in measured]
        yield from (dict(zip(measured, names, strict=True)) for names in product(*alternatives))


def _reordered(found: Mapping[str, Estimates], numbers: int) -> Iterator[dict[str, np.ndarray]]:
    draws = {name: stream("findings", "layers in any order", name) for name in found}
    for _ in range(_NUM_ORDERS):
        yield {name: _mean_in_any_order(one, numbers, draws[name]) for name, one in found.items()}


def _mean_in_any_order(one: Estimates, numbers: int, rng: np.random.Generator) -> np.ndarray:
    by_layer_ULK = one.values_UK.reshape(len(one.units), -1, numbers)
    moved = [layers[rng.permutation(len(layers))].ravel() for layers in by_layer_ULK]
    return np.mean(moved, axis=0, keepdims=True)
