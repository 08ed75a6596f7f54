"""A quantity measured under several seeds: differences stay paired, intervals come from the seeds or the sentences."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from infoflow.foundation import interval


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

    def negated(self) -> "Estimate":
        return Estimate(value=-self.value, low=-self.high, high=-self.low, seeds=self.seeds, count=self.count)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Samples:
    """A quantity per seed (or pair of seeds), each with its interval and its bootstrap replicates over sentences."""

    values: dict[object, float]
    replicates: dict[object, np.ndarray]
    intervals: dict[object, tuple[float, float]]  # of each value alone, over sentences
    count: int

    @classmethod
    def of(cls, rows: pd.DataFrame, by: str = "seed") -> "Samples":
        """One row per `by` of a measure table; of several rows with the same key the first counts."""
        values = rows["value"].to_numpy(dtype=float, na_value=math.nan)
        keys = rows[by].tolist() if by in rows else [0] * len(rows)
        places: dict[object, int] = {}
        for place in np.flatnonzero(~np.isnan(values)).tolist():
            places.setdefault(keys[place], place)
        at = list(places.values())

        def kept(column: str) -> list:
            return rows[column].iloc[at].tolist()

        lows, highs = kept("low"), kept("high")
        return cls(
            values=dict(zip(places, values[at].tolist(), strict=True)),
            replicates=_by_key(list(places), kept("replicates")) if "replicates" in rows else {},
            intervals={key: (float(a), float(b)) for key, a, b in zip(places, lows, highs, strict=True)},
            count=int(rows["count"].iloc[at].median()) if at and "count" in rows else 0,
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
        return Samples(
            values={key: self.values[key] - other.values[key] for key in keys},
            replicates=replicates,
            intervals={key: tuple(interval(values)) for key, values in replicates.items()},
            count=min(self.count, other.count),
        )

    def estimate(self) -> Estimate:
        """The mean over seeds and its 95% interval.

        From three seeds on, the t interval of the mean. Two seeds say too little about their spread (their t interval
        is 13 standard errors wide): then the span of both sentence intervals. One seed: its sentence interval.
        """
        values = np.array(list(self.values.values()), dtype=float)
        if len(values) == 0:
            return Estimate(value=math.nan, low=math.nan, high=math.nan, seeds=0, count=0)
        low, high = _t_interval(values) if len(values) > 2 else self._span_of_intervals()
        return Estimate(value=float(values.mean()), low=low, high=high, seeds=len(values), count=self.count)

    def _span_of_intervals(self) -> tuple[float, float]:
        known = [self.intervals.get(key, (math.nan, math.nan)) for key in self.values]
        return min(low for low, _ in known), max(high for _, high in known)


def _t_interval(values: np.ndarray) -> tuple[float, float]:
    mean = float(values.mean())
    half = float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / math.sqrt(len(values)))
    return mean - half, mean + half


def _by_key(keys: list, replicates: list) -> dict[object, np.ndarray]:
    arrays = {key: np.asarray(values, dtype=float) for key, values in zip(keys, replicates, strict=True)}
    return {key: array for key, array in arrays.items() if array.size}
