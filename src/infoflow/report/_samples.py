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
    """A quantity per seed (or pair of seeds), each with its bootstrap replicates over sentences."""

    values: dict[object, float]
    replicates: dict[object, np.ndarray]
    stored: tuple[float, float]  # the table's own interval, used while there is one seed and nothing was subtracted
    count: int

    @classmethod
    def of(cls, rows: pd.DataFrame, by: str = "seed") -> "Samples":
        """One row per `by` of a measure table; of several rows with the same key the first counts."""
        rows = rows.drop_duplicates(by) if by in rows else rows.head(1).assign(**{by: 0})
        stored = (float(rows["low"].iloc[0]), float(rows["high"].iloc[0])) if len(rows) else (math.nan, math.nan)
        return cls(
            values={key: float(value) for key, value in zip(rows[by], rows["value"], strict=True)},
            replicates={key: np.asarray(r, dtype=float) for key, r in zip(rows[by], rows["replicates"], strict=True)}
            if "replicates" in rows
            else {},
            stored=stored,
            count=int(rows["count"].median()) if len(rows) and "count" in rows else 0,
        )

    def __bool__(self) -> bool:
        return bool(self.values)

    def __sub__(self, other: "Samples") -> "Samples":
        """Seed by seed, replicate by replicate: shared seeds and sentences cancel."""
        keys = [key for key in self.values if key in other.values]
        replicates = {
            key: self.replicates[key] - other.replicates[key]
            for key in keys
            if key in self.replicates
            and key in other.replicates
            and self.replicates[key].shape == other.replicates[key].shape
        }
        return Samples(
            values={key: self.values[key] - other.values[key] for key in keys},
            replicates=replicates,
            stored=(math.nan, math.nan),
            count=min(self.count, other.count),
        )

    def estimate(self) -> Estimate:
        """The mean over seeds with a t interval; with one seed, its value with the sentence bootstrap's interval."""
        values = np.array(list(self.values.values()), dtype=float)
        if len(values) == 0:
            return Estimate(value=math.nan, low=math.nan, high=math.nan, seeds=0, count=0)
        mean = float(values.mean())
        low, high = self._seed_interval(values) if len(values) > 1 else self._sentence_interval()
        return Estimate(value=mean, low=low, high=high, seeds=len(values), count=self.count)

    def _seed_interval(self, values: np.ndarray) -> tuple[float, float]:
        half = float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / math.sqrt(len(values)))
        return float(values.mean()) - half, float(values.mean()) + half

    def _sentence_interval(self) -> tuple[float, float]:
        if math.isfinite(self.stored[0]):
            return self.stored
        replicates = next(iter(self.replicates.values()), np.array([]))
        return tuple(interval(replicates))
