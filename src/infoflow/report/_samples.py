"""Samples over seeds for the figures, and unbiased selection of the largest of several."""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from infoflow.results import ColumnArrays as ColumnArrays
from infoflow.results import Estimate as Estimate
from infoflow.results import Samples as Samples
from infoflow.results import seeds_of_pairs as seeds_of_pairs

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chosen(Generic[Key]):
    """The quantity that is largest on one half of the sentences; all quantities on the other half.

    The largest of many is partly so by chance: the number that a sentence reports must not be the one that selected it.
    """

    key: Key
    first: float  # number that selected it
    at: dict[Key, Samples]

    @property
    def estimate(self) -> Estimate:
        return self.at[self.key].estimate()


def chosen(found: Mapping[Key, Samples], of: Callable[[float], float] = lambda value: value) -> Chosen[Key] | None:
    """The item whose number, or a function of it, is largest; None if none has a number."""
    halves = {key: samples.halves() for key, samples in found.items()}
    known = {key: of(both.first) for key, both in halves.items() if math.isfinite(both.first)}
    if not known:
        return None
    key = max(known, key=known.__getitem__)
    return Chosen(key=key, first=halves[key].first, at={one: both.second for one, both in halves.items()})
