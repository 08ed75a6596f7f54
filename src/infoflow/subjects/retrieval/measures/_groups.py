"""Groups of facts that are measured together, and estimates of each."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import NUM_BLOCKS, Scale, UserError, hash64
from infoflow.results import ratio_estimate

from ._blocks import fact_blocks

EVERY_WEIGHT = -1
"""In the column `weight`: all facts of the kind."""
KINDS = ("trained", "changed", "held out", "withheld", "later")
_WEIGHED = ("trained", "changed")  # kinds with training questions


class FactGroup(NamedTuple):
    """Rows about facts of one kind, of one exposure or all."""

    facts: str
    weight: int
    rows: np.ndarray  # indices


def fact_groups(facts: Sequence[Fact]) -> Iterator[FactGroup]:
    """Every kind that occurs; then each exposure of trained and changed facts.

    Args:
        facts: Fact of each row.
    """
    kinds, weights = np.array([fact.kind for fact in facts]), np.array([fact.weight for fact in facts])
    for kind in KINDS:
        if (of_kind := kinds == kind).any():
            yield FactGroup(kind, EVERY_WEIGHT, np.flatnonzero(of_kind))
            for weight in np.unique(weights[of_kind]) if kind in _WEIGHED else ():
                yield FactGroup(kind, int(weight), np.flatnonzero(of_kind & (weights == weight)))


def sampled_facts(world: FactWorld, most: int, among: Collection[Fact] | None = None) -> list[Fact]:
    """At most this many facts of each kind and exposure, the same for every model, in the world's order.

    Args:
        world: World of the facts.
        most: Maximum number per kind and exposure.
        among: Facts to choose from; default: all.

    Raises:
        UserError: `most` is below 1, or there is no fact to choose from.
    """
    among = world.facts if among is None else among
    if most < 1 or not among:
        raise UserError(f"most must be at least 1, and there must be facts. Got {most:,} of {len(among):,} facts.")
    groups: dict[tuple[str, int], list[Fact]] = {}
    for fact in sorted(among, key=lambda one: hash64("measured", one.number)):
        groups.setdefault((fact.kind, fact.weight), []).append(fact)
    return sorted((fact for group in groups.values() for fact in group[:most]), key=lambda one: one.number)


def mean_estimate(
    values: np.ndarray, blocks: np.ndarray, baseline: np.ndarray | float, scale: Scale = "any"
) -> dict[str, Any]:
    """The columns of an estimate for the mean of rows, with a bootstrap over blocks of facts.

    Args:
        values: (row,).
        blocks: The block of each row's fact, `fact_blocks`.
        baseline: The control: one number, or (row,) to be averaged.
        scale: Range of the mean.
    """
    counts = np.bincount(blocks, minlength=NUM_BLOCKS).astype(float)
    return ratio_estimate(np.bincount(blocks, values, NUM_BLOCKS), counts, float(np.mean(baseline)), scale)


def group_rows(
    facts: Sequence[Fact], values: np.ndarray, baseline: np.ndarray, scale: Scale = "any"
) -> Iterator[dict[str, Any]]:
    """Rows `facts, weight` and the estimate of every group.

    Args:
        facts: Fact of each row.
        values: (row,).
        baseline: (row,), the control.
        scale: Range of a mean.
    """
    blocks = fact_blocks(facts)
    for group in fact_groups(facts):
        rows = group.rows
        numbers = mean_estimate(values[rows], blocks[rows], baseline[rows], scale)
        yield {"facts": group.facts, "weight": group.weight, **numbers}
