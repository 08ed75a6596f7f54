"""Readings of tables that hold a row per head: the best heads, and means over the heads of each layer."""

# R bootstrap replicates, K columns of the panel

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from infoflow.results import Spec

from ._model_group import Absent
from ._panel import Panel
from ._reading import Number, Objective, Tables, chosen, replicates_of, require_rows

Where = Mapping[str, Any]
"""Column → value, or alternatives (a tuple), of which the first that occurs is read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BestHeads:
    """For each entry of `columns`, the largest value over the heads that it describes, of each seed.

    Heads do not correspond between seeds, so they are selected seed by seed: by the estimate, and then followed
    through the replicates, since selecting again in each would favour lucky ones. Numbers are of the encoder's
    self-attention where a table holds more.
    """

    table: str
    objective: Objective
    columns: tuple[Where, ...]
    less: str | None = None  # a column to subtract, such as the baseline
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.table,)

    def panel(self, tables: Tables) -> Panel:
        frame = _model_rows(self, tables)
        by_seed = _by_seed(frame, self.columns, self.table)
        return _stacked(list(by_seed), [np.stack(list(map(self._best, parts)), axis=1) for parts in by_seed.values()])

    def _best(self, rows: pd.DataFrame) -> np.ndarray:
        """Estimate and replicates (1 + R,) of the best head."""
        values = _with_replicates(rows, self.number)
        if self.less is not None:
            values = values - rows[self.less].to_numpy(dtype=float)
        return values[:, values[0].argmax()]


@dataclass(frozen=True, kw_only=True, slots=True)
class OneHead:
    """Several numbers of one and the same head of each seed: the head whose weakest number lies highest.

    Each number may be less the baseline, and counts from its threshold. Selected by the estimate, seed by seed.
    """

    table: str
    objective: Objective
    columns: tuple[Where, ...]
    less_baseline: tuple[bool, ...]
    thresholds: tuple[float, ...]
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.table,)

    def panel(self, tables: Tables) -> Panel:
        frame = _model_rows(self, tables)
        by_seed = _by_seed(frame, self.columns, self.table)
        return _stacked(list(by_seed), list(map(self._head, by_seed.values())))

    def _head(self, parts: list[pd.DataFrame]) -> np.ndarray:
        """Estimates and replicates (1 + R, K) of the head."""
        heads = sorted(set.intersection(*(set(zip(part["layer"], part["head"], strict=True)) for part in parts)))
        if not heads:
            raise Absent(f"{self.table} has no head with all the numbers that the claim needs")
        numbers = []
        for part, less in zip(parts, self.less_baseline, strict=True):
            own = part.set_index(["layer", "head"]).loc[heads]
            values = _with_replicates(own, self.number)
            numbers.append(values - own["baseline"].to_numpy(dtype=float) if less else values)
        common = min(len(values) for values in numbers)
        numbers_NHK = np.stack([values[:common] for values in numbers], axis=2)
        return numbers_NHK[:, (numbers_NHK[0] - np.array(self.thresholds)).min(axis=1).argmax()]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerMeans:
    """The mean over the heads of each layer; with `ratio`, of the values over that of the baselines."""

    table: str
    objective: Objective
    where: Where
    ratio: bool = False
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.table,)

    def panel(self, tables: Tables) -> Panel:
        frame = _narrowed(_model_rows(self, tables), self.where, self.table)
        layers = sorted(set(frame["layer"]))
        seeds = sorted(set(frame["seed"]))
        numbers = [np.stack(list(self._layers(frame[frame["seed"] == seed], layers)), axis=1) for seed in seeds]
        return _stacked(seeds, numbers)

    def _layers(self, rows: pd.DataFrame, layers: list[int]) -> Iterator[np.ndarray]:
        for layer in layers:
            part = rows[rows["layer"] == layer]
            mean = _with_replicates(part, self.number).mean(axis=1)
            yield mean / part["baseline"].mean() if self.ratio else mean


def _model_rows(reading: "BestHeads | OneHead | LayerMeans", tables: Tables) -> pd.DataFrame:
    """The rows of the objective's models, trained or not; what a run lacks is named."""
    rows = tables.rows(reading.table, Spec(reading.objective), ["trained"], trained=reading.trained)
    rows = chosen(rows, {"kind": "self"} if "kind" in rows.columns else {})
    require_rows(rows, tables.table(reading.table), reading.table, reading.objective, reading.trained)
    return rows.dropna(subset=[reading.number])


def _narrowed(frame: pd.DataFrame, where: Where, table: str) -> pd.DataFrame:
    for column, wanted in where.items():
        alternatives = wanted if isinstance(wanted, tuple) else (wanted,)
        present = [value for value in alternatives if (frame[column] == value).any()]
        if not present:
            raise Absent(f"{table} has no rows with {column} {' or '.join(map(str, alternatives))}")
        frame = frame.loc[frame[column] == present[0]]
    return frame


def _by_seed(frame: pd.DataFrame, columns: tuple[Where, ...], table: str) -> dict[int, list[pd.DataFrame]]:
    """Each seed's rows of every column of the panel; seeds that lack one are left out."""
    parts = [_narrowed(frame, where, table) for where in columns]
    seeds = sorted(set.intersection(*(set(part["seed"]) for part in parts)))
    if not seeds:
        raise Absent(f"{table} has no seed with all the rows that the claim needs")
    return {seed: [part[part["seed"] == seed] for part in parts] for seed in seeds}


def _with_replicates(rows: pd.DataFrame, number: Number) -> np.ndarray:
    """Numbers of the rows and, where there are any, their replicates (1 + R, rows)."""
    values = rows[number].to_numpy(dtype=float)[None]
    return np.concatenate([values, replicates_of(rows).T]) if number == "value" else values


def _stacked(seeds: list[int], numbers: list[np.ndarray]) -> Panel:
    """A panel of (1 + R, K) numbers of each seed; one place on the layer axis, whatever the columns are."""
    common = min(len(rows) for rows in numbers)
    stacked = np.stack([rows[:common] for rows in numbers])
    units = tuple((int(seed),) for seed in seeds)
    return Panel(units=units, layers=(0,), values_UK=stacked[:, 0], replicates_URK=stacked[:, 1:])
