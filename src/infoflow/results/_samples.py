"""Numbers measured under several seeds: differences stay paired, and intervals cover seeds and sentences."""

# U units (a seed, or a pair of seeds), R bootstrap replicates over sentences, K numbers, such as the points of a curve,
# N rows of a table

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from infoflow.foundation import (
    Interval,
    Scale,
    at_least_apart,
    block_effects,
    block_interval,
    bounds_of,
    interval_over_seeds,
    on_halves,
    replicate_weights,
    scale_of_difference,
)

from ._schema import scale_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A number with its 95% interval (NaN if unknown)."""

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
        """1 or −1 if the interval lies on one side of zero, else 0 (also without an interval)."""
        if not self.has_interval:
            return 0
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def within(self, bounds: tuple[float, float]) -> "Estimate":
        """The same estimate, with its interval clipped to the number's range."""
        if not self.has_interval:
            return self
        low, high = (min(max(end, bounds[0]), bounds[1]) for end in (self.low, self.high))
        return Estimate(value=self.value, low=low, high=high, seeds=self.seeds, count=self.count)

    def negated(self) -> "Estimate":
        return Estimate(value=-self.value, low=-self.high, high=-self.low, seeds=self.seeds, count=self.count)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Samples:
    """K numbers of each unit, with bootstrap replicates over sentences; K is 1 for a point, and more for a curve.

    A unit is the owner of a table row: one seed, or two seeds if the number is a distance between two initialisations.
    """

    units: tuple[tuple[int, ...], ...]
    values_UK: np.ndarray
    replicates_URK: np.ndarray  # R is 0 without a bootstrap
    keys: tuple[object, ...]  # match the units of two samples
    ends_U2: np.ndarray | None = None  # each number's own interval from its table; None: from its replicates
    count: int = 0  # observations behind each number
    scale: Scale = "any"  # range of the numbers
    depth: int = 0  # the highest layer of a curve over layers
    sampled: bool = True  # whether the replicates come from a bootstrap over sentences

    @classmethod
    def of(
        cls, rows: pd.DataFrame, by: str = "seed", among: np.ndarray | None = None, scale: Scale | None = None
    ) -> "Samples":
        """The column `value` of one row (the first, if there are several) for each value of the column `by`.

        Args:
            rows: Rows of a measure's table.
            by: Column that distinguishes repetitions.
            among: Mask of the rows to use; by default all.
            scale: Range of the values; by default that of their metric and the table's unit.
        """
        places = np.arange(len(rows)) if among is None else np.flatnonzero(among)
        candidates = places[~np.isnan(_numbers(rows, "value", places))]
        keys = _taken(rows, by, candidates) if by in rows else [0] * len(candidates)
        first: dict[object, int] = {}
        for key, row in zip(keys, candidates.tolist(), strict=True):
            first.setdefault(key, row)
        at = np.array([*first.values()], dtype=np.intp)
        drawn = _taken(rows, "replicates", at) if "replicates" in rows else [()] * len(at)
        return cls(
            units=_units(tuple(first), seeds_of_pairs(rows, by, at)),
            values_UK=_numbers(rows, "value", at)[:, None],
            replicates_URK=_stacked(drawn).T[:, :, None],
            keys=tuple(first),
            ends_U2=np.stack([_numbers(rows, name, at) for name in ("low", "high")], axis=1),
            count=int(np.nanmedian(_numbers(rows, "count", at))) if len(at) and "count" in rows else 0,
            scale=_scale(rows, at) if scale is None else scale,
        )

    @classmethod
    def of_units(cls, found: Mapping[tuple[int, ...], np.ndarray], depth: int = 0, sampled: bool = True) -> "Samples":
        """Samples from each unit's rows (1 + R, K), measured numbers first; replicates are cut to a common number."""
        common = min(len(rows) for rows in found.values())
        rows_URK = np.stack([np.asarray(rows[:common]) for rows in found.values()])
        # Replicates of one curve point are contiguous, so that sums over them are exact to the last bit.
        by_point_UKR = np.ascontiguousarray(rows_URK[:, 1:].transpose(0, 2, 1)) if depth else None
        return cls(
            units=tuple(found),
            values_UK=rows_URK[:, 0],
            replicates_URK=rows_URK[:, 1:] if by_point_UKR is None else by_point_UKR.transpose(0, 2, 1),
            keys=tuple(found),
            depth=depth,
            sampled=sampled,
        )

    @classmethod
    def by_key(
        cls,
        values: Mapping[object, float],
        replicates: Mapping[object, np.ndarray],
        *,
        count: int = 0,
        units: Mapping[object, tuple[int, ...]] | None = None,
        scale: Scale = "any",
    ) -> "Samples":
        """A number for each key with its replicates; `units` maps keys to seeds, by default to the key itself."""
        keys = tuple(values)
        common = min((len(replicates.get(key, ())) for key in keys), default=0)
        drawn = np.zeros((len(keys), common, 1))
        for row, key in enumerate(keys):
            drawn[row, :, 0] = replicates.get(key, np.zeros(0))[:common]
        values_U1 = np.array([float(value) for value in values.values()]).reshape(-1, 1)
        return cls(
            units=_units(keys, units or {}),
            values_UK=values_U1,
            replicates_URK=drawn,
            keys=keys,
            count=count,
            scale=scale,
        )

    @classmethod
    def of_row(cls, row: Mapping[Hashable, Any], shift: float = 0.0) -> "Samples":
        """Samples of one row of a measure's table, with `shift` subtracted from its numbers."""
        replicates = np.asarray(row.get("replicates", ()), dtype=float) - shift
        return cls(
            units=((0,),),
            values_UK=np.array([[row["value"] - shift]], dtype=float),
            replicates_URK=replicates.reshape(1, -1, 1),
            keys=(0,),
            ends_U2=np.array([[row["low"] - shift, row["high"] - shift]], dtype=float),
        )

    @classmethod
    def bare(cls, values: Mapping[object, float], scale: Scale = "any") -> "Samples":
        """Values without replicates, which get an interval only from several seeds."""
        return cls.by_key(values, {}, scale=scale)

    def __bool__(self) -> bool:
        return bool(self.keys)

    @property
    def seeds(self) -> set[int]:
        return {seed for unit in self.units for seed in unit}

    @property
    def num_replicates(self) -> int:
        return self.replicates_URK.shape[1]

    @property
    def values(self) -> dict[object, float]:
        """The single number of each unit, by its key."""
        return dict(zip(self.keys, self.values_UK[:, 0].tolist(), strict=True))

    @property
    def replicates(self) -> dict[object, np.ndarray]:
        """The replicates (R,) of each unit's single number, by its key; empty without a bootstrap."""
        return dict(zip(self.keys, self.replicates_URK[:, :, 0], strict=True)) if self.num_replicates else {}

    def __sub__(self, other: "Samples") -> "Samples":
        """Difference by unit and replicate, so that what seeds and sentences have in common cancels."""
        there = {key: row for row, key in enumerate(other.keys)}
        mine = [row for row, key in enumerate(self.keys) if key in there]
        theirs = [there[self.keys[row]] for row in mine]
        drawn = self.num_replicates if self.num_replicates == other.num_replicates else 0
        found = Samples(
            units=tuple(self.units[row] for row in mine),
            values_UK=self.values_UK[mine] - other.values_UK[theirs],
            replicates_URK=self.replicates_URK[mine][:, :drawn] - other.replicates_URK[theirs][:, :drawn],
            keys=tuple(self.keys[row] for row in mine),
            count=min(self.count, other.count),
            scale=scale_of_difference(self.scale, other.scale),
        )
        return replace(found, ends_U2=_ends_of_still(found, (self, mine), (other, theirs)))

    def applied(self, function: Callable[[np.ndarray], np.ndarray]) -> "Samples":
        """These samples with an elementwise function applied to their numbers and replicates."""
        return replace(
            self,
            values_UK=function(self.values_UK),
            replicates_URK=function(self.replicates_URK),
            ends_U2=None,
            scale="any",
        )

    def only(self, seeds: set[int]) -> "Samples":
        """The units whose seeds are all among `seeds`."""
        rows = [row for row, unit in enumerate(self.units) if seeds.issuperset(unit)]
        return replace(
            self,
            units=tuple(self.units[row] for row in rows),
            values_UK=self.values_UK[rows],
            replicates_URK=self.replicates_URK[rows],
            keys=tuple(self.keys[row] for row in rows),
            ends_U2=None if self.ends_U2 is None else self.ends_U2[rows],
        )

    def _is_still(self) -> np.ndarray:
        """Whether no draw moves the single number of each unit, (U,)."""
        drawn_UR = self.replicates_URK[:, :, 0]
        same_UR = (drawn_UR == self.values_UK) | ~np.isfinite(drawn_UR)
        return same_UR.all(axis=1) & np.isfinite(drawn_UR).any(axis=1)

    def noise(self, num_replicates: int) -> np.ndarray:
        """The first `num_replicates` minus their mean, (U, R, K): the spread of the numbers over sentences.

        The mean replaces the number itself because a plug-in measure (mutual information, PWCCA) is biased in a
        resample, which has fewer distinct sentences. A missing replicate counts as the mean, and the others are scaled
        up for it.
        """
        noise_URK = self.replicates_URK[:, :num_replicates]
        known_URK = np.isfinite(noise_URK)
        if known_URK.all():
            return noise_URK - noise_URK.mean(axis=1, keepdims=True)
        num_U1K = np.maximum(known_URK.sum(axis=1, keepdims=True), 1)
        mean_U1K = np.where(known_URK, noise_URK, 0.0).sum(axis=1, keepdims=True) / num_U1K
        return np.where(known_URK, noise_URK - mean_U1K, 0.0) * np.sqrt(noise_URK.shape[1] / num_U1K)

    def mean(self) -> np.ndarray:
        """The mean over units, (1, K)."""
        return self.values_UK.mean(axis=0, keepdims=True)

    def alone(self, seed: int) -> np.ndarray:
        """The mean over the units that involve `seed`, (1, K)."""
        return self.values_UK[[seed in unit for unit in self.units]].mean(axis=0, keepdims=True)

    def halves(self) -> "Halves":
        """The mean of the single number on one half of the sentences, and the number on the other half.

        Both use all sentences if the replicates do not come from blocks of sentences.
        """
        values = self.values_UK[:, 0]
        mean = float(values.mean()) if len(values) else math.nan
        if not len(values) or not self.num_replicates:
            return Halves(mean, self)
        found = on_halves(values, list(self.replicates_URK[:, :, 0]))
        if not np.isfinite([found.first, found.second]).all() or not np.isfinite(found.effects).all():
            return Halves(mean, self)
        second = found.second.clip(*bounds_of(self._scale_here(values)))
        draws = second[:, None] + found.effects @ (replicate_weights() - 1).T
        scale, count = self._scale_here(second), self.count / 2 if self.count else math.inf
        ends = [
            tuple(block_interval(value, effects, scale=scale, count=count))
            for value, effects in zip(second.tolist(), found.effects, strict=True)
        ]
        half = replace(self, values_UK=second[:, None], replicates_URK=draws[:, :, None], ends_U2=np.array(ends))
        return Halves(float(found.first.mean()), half)

    def estimate(self) -> Estimate:
        """Mean over units of their single number, with the 95% interval over seeds and sentences that verdicts use.

        For a single unit, the interval is that of its table, over sentences.
        """
        values = self.values_UK[:, 0]
        if not len(values):
            return Estimate(value=math.nan, low=math.nan, high=math.nan, seeds=0, count=0)
        own, least, most = list(self._own_ends()), *bounds_of(self.scale)
        low, high = own[0]
        if len(values) > 1:
            drawn = self.replicates_URK[:, :, 0] if self.num_replicates else None
            if drawn is not None and (known := np.isfinite(drawn).all(axis=0)).any():
                drawn = drawn[:, known]  # with few sentences, a draw may contain none of them
            low, high = interval_over_seeds(self.units, values, drawn, own, self._scale_here(values))
        found = Estimate(value=float(values.mean()), low=low, high=high, seeds=len(values), count=self.count)
        return found.within((least, most)) if least <= found.value <= most else found

    def _scale_here(self, values: np.ndarray) -> Scale:
        """The scale, or an unbounded one if a value lies outside it."""
        least, most = bounds_of(self.scale)
        return self.scale if ((least <= values) & (values <= most)).all() else "any"

    def _own_ends(self) -> Iterator[tuple[float, float]]:
        """The interval of each unit's single number, over sentences."""
        for row, value in enumerate(self.values_UK[:, 0].tolist()):
            if self.ends_U2 is not None:
                yield float(self.ends_U2[row, 0]), float(self.ends_U2[row, 1])
            elif self.num_replicates > 1:
                effects, scale = block_effects(value, self.replicates_URK[row, :, 0]), self._scale_here(np.array(value))
                bounded = bool(np.any(effects)) or (self.count > 0 and value in bounds_of(scale))
                yield tuple(block_interval(value, effects, scale=scale if bounded else "any", count=self.count))
            else:
                yield math.nan, math.nan


def _ends_of_still(
    found: Samples, one: tuple[Samples, Sequence[int]], other: tuple[Samples, Sequence[int]]
) -> np.ndarray | None:
    """The intervals (U, 2) of differences, with the table's interval for a side that no draw moves; None if all move.

    No draw moves a side if all answers of a model are right, or none: resampling then shows no variation, and the
    difference would have an interval without width, or only the width of the other side.
    """
    if found.values_UK.shape[1] != 1 or not found.num_replicates or not found.keys:
        return None
    still = np.logical_or(*(samples._is_still()[rows] for samples, rows in (one, other)))
    if not still.any():
        return None
    sides = [
        list(zip(samples.values_UK[:, 0].tolist(), samples._own_ends(), strict=True)) for samples, _ in (one, other)
    ]
    ends = np.array(list(found._own_ends()))
    for place in np.flatnonzero(still).tolist():
        pair = (side[rows[place]] for side, (_, rows) in zip(sides, (one, other), strict=True))
        ends[place] = at_least_apart(Interval(*ends[place]), *((value, Interval(*own)) for value, own in pair))
    return ends


class Halves(NamedTuple):
    """A quantity measured on each of two halves of the sentences."""

    first: float
    second: Samples


def replicates_of(rows: pd.DataFrame) -> np.ndarray:
    """The replicates of each row, (R, N), truncated to their common number; R is 0 if a row has none."""
    return _stacked(rows["replicates"] if "replicates" in rows else [()] * len(rows))


def _stacked(drawn: Iterable[Any]) -> np.ndarray:
    none = (type(None), float)  # pandas fills rows without replicates with None or NaN when it joins tables
    lists = [np.asarray([] if isinstance(row, none) else row, dtype=float).ravel() for row in drawn]
    common = min(map(len, lists), default=0)
    return np.array([row[:common] for row in lists]).reshape(len(lists), common).T


def seeds_of_pairs(rows: pd.DataFrame, by: str, at: np.ndarray) -> dict[object, tuple[int, ...]]:
    """The seeds of each pair of models, by its value of `by`; empty if rows describe single models; `at`: the rows."""
    if by == "seed" or not {"seed_a", "seed_b"} <= set(rows.columns):
        return {}
    ends = zip(*(_taken(rows, name, at) for name in (by, "seed_a", "seed_b")), strict=True)
    return {key: tuple(sorted({int(a), int(b)})) for key, a, b in ends}


# A point has few of a table's many rows, and `rows[name].array.take(at)` copies nothing else.
def _taken(rows: pd.DataFrame, name: str, at: np.ndarray) -> list[Any]:
    return rows[name].array.take(at).to_numpy().tolist()


def _numbers(rows: pd.DataFrame, name: str, at: np.ndarray) -> np.ndarray:
    return rows[name].array.take(at).to_numpy(dtype=float, na_value=math.nan)


def _units(keys: tuple[object, ...], known: Mapping[object, tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    return tuple(known.get(key, (row,)) for row, key in enumerate(keys))


def _scale(rows: pd.DataFrame, at: np.ndarray) -> Scale:
    columns = [_taken(rows, name, at) for name in ("metric", "statistic", "measure") if name in rows]
    names = {str(name) for column in columns for name in column} or {""}
    scales = {scale_of(name, rows.attrs.get("unit", "")) for name in names}
    return scales.pop() if len(scales) == 1 else "any"
