"""A quantity measured under several seeds: differences stay paired, intervals cover seeds and sentences."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from infoflow.foundation import block_effects, block_interval, interval_over_seeds


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A number with its 95% interval (NaN where none is known)."""

    value: float
    low: float
    high: float
    seeds: int
    count: int  # observations behind each measurement

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def sign(self) -> int:
        """1 or −1 where the interval lies on one side of zero, else 0 (also without an interval)."""
        if not self.has_interval:
            return 0
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def within(self, bounds: tuple[float, float]) -> "Estimate":
        """The same with its interval cut to what the number can be."""
        if not self.has_interval:
            return self
        low, high = (min(max(end, bounds[0]), bounds[1]) for end in (self.low, self.high))
        return Estimate(value=self.value, low=low, high=high, seeds=self.seeds, count=self.count)

    def negated(self) -> "Estimate":
        return Estimate(value=-self.value, low=-self.high, high=-self.low, seeds=self.seeds, count=self.count)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Samples:
    """A quantity per seed (or pair of seeds), each with its interval and its bootstrap replicates over sentences."""

    values: dict[object, float]
    replicates: dict[object, np.ndarray]
    intervals: dict[object, tuple[float, float]]  # of each value alone, over sentences
    count: int
    units: dict[object, tuple[int, ...]] = field(default_factory=dict)  # the seeds of each; by default its key is one

    @classmethod
    def of(cls, rows: pd.DataFrame, by: str = "seed", among: np.ndarray | None = None) -> "Samples":
        """One row per `by` of a measure table; of several rows with the same key the first counts.

        `among`: for each row whether it is asked for; all are by default.
        """
        values = rows["value"].to_numpy(dtype=float, na_value=math.nan)
        known = ~np.isnan(values) if among is None else among & ~np.isnan(values)
        candidates = np.flatnonzero(known).tolist()
        keys = rows[by].iloc[candidates].tolist() if by in rows else [0] * len(candidates)
        places: dict[object, int] = {}
        for key, place in zip(keys, candidates, strict=True):
            places.setdefault(key, place)
        at = list(places.values())

        def kept(column: str) -> list:
            return rows[column].iloc[at].tolist()

        lows, highs = kept("low"), kept("high")
        return cls(
            values=dict(zip(places, values[at].tolist(), strict=True)),
            replicates=_by_key(list(places), kept("replicates")) if "replicates" in rows else {},
            intervals={key: (float(a), float(b)) for key, a, b in zip(places, lows, highs, strict=True)},
            count=int(rows["count"].iloc[at].median()) if at and "count" in rows else 0,
            units=seeds_of_pairs(rows, by, at),
        )

    @classmethod
    def bare(cls, values: dict[object, float]) -> "Samples":
        """Values without replicates: only several seeds can give them an interval."""
        return cls(values=values, replicates={}, intervals={}, count=0)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __sub__(self, other: "Samples") -> "Samples":
        """Seed by seed, replicate by replicate: shared seeds and sentences cancel."""
        keys = [key for key in self.values if key in other.values]
        pairs = {key: (self.replicates.get(key), other.replicates.get(key)) for key in keys}
        replicates = {
            key: mine - theirs
            for key, (mine, theirs) in pairs.items()
            if mine is not None and theirs is not None and mine.shape == theirs.shape
        }
        values = {key: self.values[key] - other.values[key] for key in keys}
        return Samples(
            values=values,
            replicates=replicates,
            intervals={
                key: tuple(block_interval(values[key], block_effects(values[key], own)))
                for key, own in replicates.items()
            },
            count=min(self.count, other.count),
            units=self.units,
        )

    def estimate(self) -> Estimate:
        """The mean over seeds and its 95% interval over seeds and sentences, as verdicts have it.

        One seed: the interval of its table, over sentences.
        """
        values = np.array(list(self.values.values()), dtype=float)
        if len(values) == 0:
            return Estimate(value=math.nan, low=math.nan, high=math.nan, seeds=0, count=0)
        low, high = self._over_seeds(values) if len(values) > 1 else next(self._own_intervals())
        return Estimate(value=float(values.mean()), low=low, high=high, seeds=len(values), count=self.count)

    def _over_seeds(self, values: np.ndarray) -> tuple[float, float]:
        units = [self.units.get(key, (place,)) for place, key in enumerate(self.values)]
        known = [self.replicates[key] for key in self.values if key in self.replicates]
        paired = len(known) == len(values) and len({array.shape for array in known}) == 1
        return interval_over_seeds(units, values, np.stack(known) if paired else None, list(self._own_intervals()))

    def _own_intervals(self) -> Iterator[tuple[float, float]]:
        return (self.intervals.get(key, (math.nan, math.nan)) for key in self.values)


def seeds_of_pairs(rows: pd.DataFrame, by: str, at: list[int]) -> dict[object, tuple[int, ...]]:
    """The seeds of each pair of models, where rows are of pairs; `at`: places of the rows to look at."""
    if by == "seed" or not {"seed_a", "seed_b"} <= set(rows.columns):
        return {}
    ends = zip(*(rows[name].iloc[at] for name in (by, "seed_a", "seed_b")), strict=True)
    return {key: tuple(sorted({int(a), int(b)})) for key, a, b in ends}


def _by_key(keys: list, replicates: list) -> dict[object, np.ndarray]:
    arrays = {key: np.asarray(values, dtype=float) for key, values in zip(keys, replicates, strict=True)}
    return {key: array for key, array in arrays.items() if array.size}
