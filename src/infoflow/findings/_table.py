"""The rows that a claim reads, `Table(name, objective).where(...)`, and their reduction to numbers for each seed.

`Table(...).by("layer")` is a curve over layers, `Table(...).reduce(function)` computes any numbers from the rows, and
`together` computes numbers from the rows of several tables.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import EllipsisType
from typing import Any, Literal

import numpy as np
import pandas as pd

from infoflow.foundation import NUM_REPLICATES
from infoflow.results import Samples, Spec, replicates_of

from ._model_group import NAMES, Absent, Ambiguous, ModelGroup

# R bootstrap replicates, N rows of one seed, K numbers
Unit = tuple[int, ...]
_Open = tuple | EllipsisType  # all alternatives of a setting

# If a table has several settings of a measure, claims read the setting that the published numbers used.
_SETTINGS: dict[str, Any] = {
    "stack": "encoder",
    "stack_a": "encoder",
    "stack_b": "encoder",
    "side": "mean",
    "metric": "cosine",
    "neighbours": 50,
    "few": "require",
    "regime": "clean",
    "space": "raw",
    "words": "mean",
    "weight": -1,  # all exposures
    "facts": "all",
}


@dataclass(frozen=True, slots=True, eq=False)
class SeedRows:
    """The rows of one seed in a table."""

    frame: pd.DataFrame
    number: str = "value"

    @property
    def numbers(self) -> np.ndarray:
        """Each row's number and, for values, its replicates: (1 + R, N)."""
        values = self.column(self.number)[None]
        return np.concatenate([values, self.replicates]) if self.number == "value" else values

    @property
    def replicates(self) -> np.ndarray:
        """The replicates of each row, (R, N), truncated to the common number; R is 0 if a row has no replicates."""
        return replicates_of(self.frame)

    @property
    def sampled(self) -> bool:
        """Whether the replicates differ; without a bootstrap, each replicate repeats the number."""
        return varies(self.replicates)

    def column(self, name: str) -> np.ndarray:
        return self.frame[name].to_numpy(dtype=float)

    def at(self, keep: Any) -> "SeedRows":
        """The rows that the mask `keep` selects."""
        return SeedRows(self.frame[keep], self.number)

    def groups(self, column: str) -> list[tuple[Any, "SeedRows"]]:
        """The rows of each value of a column, in order."""
        return [(value, SeedRows(own, self.number)) for value, own in self.frame.groupby(column)]


Function = Callable[..., np.ndarray | None]
"""Maps the rows of one seed in each table to K numbers, (1 + R, K), estimate first; None leaves the seed out."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a table about the models of an objective, or about pairs of models of two objectives.

    A tuple in `where` lists alternatives, of which the first that exists is read; `...` selects all values.
    """

    name: str
    objective: Spec
    other: Spec | None = None  # pairs with models of this objective
    seeds: Literal["one", "ordered", "unordered"] = "one"  # seeds of a pair: equal or different
    settings: tuple[tuple[str, Any], ...] = ()
    needs: tuple[str, ...] = ()  # additional columns
    known: bool = False  # skip rows without the number
    trained: bool = True
    course: bool = False  # rows of all checkpoints, for a table over training
    number: str = "value"
    architecture: str = ""  # architecture of the models; "": the one that the claim is tested on
    absent: str = ""  # message if there are no such rows
    no_model: str = ""  # message if the table has no model of the objective

    def where(self, **settings: Any) -> "Table":
        return replace(self, settings=(*self.settings, *settings.items()))

    def by(self, column: str = "layer", *, first: int = 0) -> "Reading":
        """A curve over layers, from layer `first` on."""
        table = replace(self, needs=(*self.needs, column))
        return Reading((table,), partial(_curve, column=column, first=first, name=self.name), first)

    def reduce(self, function: Function, **options: Any) -> "Reading":
        return Reading((self,), partial(function, **options) if options else function)

    def units(self, models: ModelGroup) -> dict[Unit, SeedRows]:
        """The rows of each seed, or pair of seeds.

        Raises:
            Absent: There are no such rows.
        """
        frame = self._rows(models)
        columns = ["seed"] if self.other is None else ["seed_a"] if self.seeds == "one" else ["seed_a", "seed_b"]
        keys = frame[columns].to_numpy(dtype=int)
        keys = np.sort(keys, axis=1) if self.seeds == "unordered" else keys
        units = [tuple(map(int, key)) for key in np.unique(keys, axis=0)]
        return {unit: SeedRows(frame[(keys == unit).all(axis=1)], self.number) for unit in units}

    def _rows(self, models: ModelGroup) -> pd.DataFrame:
        models = replace(models, architecture=self.architecture) if self.architecture else models
        keys = ("seed_a", "seed_b") if self.other else ("seed",)
        columns = [*keys, self.number, *self.needs, *(name for name, _ in self.settings)]
        if self.course:
            frame = models.course(self.name, self.objective, columns)
        elif self.other is None:
            frame = models.rows(self.name, self.objective, columns, trained=self.trained)
        else:
            frame = models.pairs(self.name, self.objective, self.other, columns, trained=self.trained)
            frame = frame[(frame["seed_a"] == frame["seed_b"]) == (self.seeds == "one")]
        found = _chosen(frame, dict(self.settings))
        self._require(found, models)
        found = found.dropna(subset=[self.number]) if self.known else found
        for column, wanted in self.settings:
            if isinstance(wanted, tuple):
                none = f"{self.name} has no rows with {column} {' or '.join(map(str, wanted))}"
                found = _first_of(found, column, wanted, self._said_absent or none)
        return found

    def _require(self, found: pd.DataFrame, models: ModelGroup) -> None:
        """Raise `Absent` with what is missing if no rows were found."""
        if not found.empty:
            return
        if self.other is None:
            whole = models.table(self.name)
            present = sorted({Spec(*one).label for one in zip(whole["objective"], whole["variant"], strict=True)})
            if self.objective.label not in present:
                none = f"there is no {NAMES[self.objective]} among the models ({', '.join(present)})"
                raise Absent(self.no_model or none)
        plain = [f"{name} {value}" for name, value in self.settings if not isinstance(value, _Open)]
        which = f" with {' and '.join(plain)}" if plain else ""
        raise Absent(
            self._said_absent or f"{self.name} has no matching rows{which} of the {self._state} {NAMES[self.objective]}"
        )

    @property
    def _state(self) -> str:
        return "trained" if self.trained else "untrained"

    @property
    def _said_absent(self) -> str:
        return self.absent.format(state=self._state)


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers that a claim uses from each seed, computed from the seed's rows in one or several tables."""

    tables: tuple[Table, ...]
    function: Function
    first_layer: int | None = None  # for curves over layers, since all curves of one claim must have the same depth
    optional: int = 0  # how many of the last tables may be absent; the function gets None for their rows

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the tables that the reading uses."""
        return tuple(dict.fromkeys(table.name for table in self.tables))

    def changed(self, **changes: Any) -> "Reading":
        """The same reading of other rows: untrained models (`trained=False`) or baselines (`number="baseline"`)."""
        return replace(self, tables=tuple(replace(table, **changes) for table in self.tables))

    def estimates(self, models: ModelGroup) -> Samples:
        """The numbers of all seeds that have rows in every table.

        Raises:
            Absent: The tables lack these numbers.
        """
        state = any(table.trained for table in self.tables)
        return models.once(self, lambda: self._estimates(models), trained=state)

    def _estimates(self, models: ModelGroup) -> Samples:
        needed = len(self.tables) - self.optional
        parts = [table.units(models) for table in self.tables[:needed]]
        parts += [_units_or_none(table, models) for table in self.tables[needed:]]
        units = sorted(set.intersection(*(set(part) for part in parts[:needed])))
        found = {unit: self.function(*(part.get(unit) for part in parts)) for unit in units}
        known = {unit: rows for unit, rows in found.items() if rows is not None}
        names = " and ".join(self.sources)
        if not known:
            raise Absent(self.tables[0].absent or f"no seed in {names} has all the rows that the claim needs")
        sizes = {rows.shape[1] for rows in known.values()}
        if len(sizes) > 1:
            what = "rows" if self.first_layer is None else "layers"
            raise Absent(f"{names} holds different {what} for different seeds")
        read = [part[unit] for unit in known for part in parts if unit in part]
        sampled = any(
            varies(rows[1:]) or (not isinstance(rows, Exact) and any(one.sampled for one in read))
            for rows in known.values()
        )
        depth = 0 if self.first_layer is None else self.first_layer + sizes.pop() - 1
        return Samples.of_units(known, depth=depth, sampled=sampled)


def together(function: Function, *tables: Table, optional: int = 0, **options: Any) -> Reading:
    """Numbers computed from the rows of a seed in several tables."""
    return Reading(tables, partial(function, **options) if options else function, optional=optional)


def untrained(reads: Mapping[str, Reading]) -> dict[str, Reading]:
    """The same readings for the untrained controls."""
    return {name: reading.changed(trained=False) for name, reading in reads.items()}


def baselines(reads: Mapping[str, Reading]) -> dict[str, Reading]:
    """The baselines of the same readings (shuffled labels, shuffled rows, or chance)."""
    return {name: reading.changed(number="baseline") for name, reading in reads.items()}


def one_number(rows: SeedRows) -> np.ndarray:
    numbers = rows.numbers
    if numbers.shape[1] != 1 or not np.isfinite(numbers[0]).all():
        raise Absent(f"a table has {numbers.shape[1]} rows for one model, or no number: one number is needed")
    return numbers


def mean_number(rows: SeedRows) -> np.ndarray:
    return rows.numbers.mean(axis=1, keepdims=True)


class Exact(np.ndarray):
    """Marks numbers without a bootstrap over sentences, since constant replicates may also come from few tasks."""


def exact(values: Any) -> Exact:
    """Mark numbers as not bootstrapped: all replicates repeat them, so that intervals come only from seeds."""
    return np.tile(np.asarray(values, dtype=float), (1 + NUM_REPLICATES, 1)).view(Exact)


def varies(rows: np.ndarray) -> bool:
    return len(rows) > 1 and bool(np.ptp(np.nan_to_num(rows), axis=0).any())


def gather(reads: Mapping[str, Reading], models: ModelGroup, within: set[int] | None = None) -> dict[str, Samples]:
    """The numbers of a claim for the seeds common to all its readings."""
    found, missing = {}, []
    for name, reading in reads.items():
        try:
            found[name] = reading.estimates(models)
        except Absent as absent:
            missing.append(str(absent))
        except (KeyError, ValueError, TypeError, IndexError):  # a damaged table affects only its claims
            missing.append(
                f"the table {', '.join(reading.sources)} lacks rows or columns, or holds values of other kinds"
            )
    if missing:
        raise Absent("; ".join(dict.fromkeys(missing)))
    seeds = set.intersection(*(one.seeds for one in found.values()), *([within] if within is not None else []))
    if len({one.depth for one in found.values()}) > 1:
        raise Absent("the models differ in depth")
    return of_seeds(found, seeds)


def of_seeds(found: Mapping[str, Samples], seeds: set[int]) -> dict[str, Samples]:
    chosen = {name: one.only(seeds) for name, one in found.items()}
    if not all(chosen.values()):
        raise Absent("no seed has rows in every table that the claim needs")
    return chosen


def _curve(rows: SeedRows, column: str, first: int, name: str) -> np.ndarray:
    depths = rows.frame[column].to_numpy(dtype=float, na_value=np.nan)
    at = np.argsort(depths)[np.sum(depths < first) : np.isfinite(depths).sum()]
    check_layers(tuple(depths[at].astype(int).tolist()), first, name)
    numbers = SeedRows(rows.frame.iloc[at], rows.number).numbers
    if not np.isfinite(numbers[0]).all():
        raise Absent(f"{name} holds no number ({rows.number}) at some layers")
    return numbers


def check_layers(layers: tuple[int, ...], first: int, name: str) -> None:
    """Raise `Absent` if layers of a model are missing, duplicated or too few."""
    if layers != tuple(range(first, first + len(layers))):
        advice = "; .where(COLUMN=VALUE) chooses one row for each" if len(set(layers)) < len(layers) else ""
        held = ", ".join(map(str, layers)) or "none"
        raise Absent(f"the table {name} lacks a layer or holds one twice: it has {held}{advice}")
    if len(layers) < 3:
        raise Absent(f"the model is too shallow: {name} has {len(layers)} layers from layer {first} on, needed 3")


def _units_or_none(table: Table, models: ModelGroup) -> dict[Unit, SeedRows]:
    try:
        return table.units(models)
    except Ambiguous:
        raise
    except Absent:
        return {}


def _chosen(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows selected by `where`; settings that it does not fix take the published or the only value."""
    keep = np.ones(len(frame), dtype=bool)
    for column, wanted in where.items():
        if not isinstance(wanted, _Open):
            keep &= np.asarray(frame[column] == wanted, dtype=bool)
    for column, wanted in _SETTINGS.items():
        if column in frame.columns and column not in where and len(set(frame[column].to_numpy()[keep])) > 1:
            keep &= np.asarray(frame[column] == wanted, dtype=bool)
    return frame[keep]


def _first_of(frame: pd.DataFrame, column: str, alternatives: tuple, none: str) -> pd.DataFrame:
    for wanted in alternatives:
        if (keep := frame[column] == wanted).any():
            return frame[keep]
    raise Absent(none)
