"""What a claim reads: a curve over layers, of each seed, from the tables of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from infoflow.results import Spec

from ._model_group import Absent, ModelGroup
from ._panel import Panel

Tables = ModelGroup
Objective = Literal["causal-lm", "masked-lm", "translation"]
Number = Literal["value", "baseline", "clustering_spread", "at_half"]

OBJECTIVE_NAMES: dict[str, str] = {
    "causal-lm": "causal LM",
    "masked-lm": "masked LM",
    "translation": "translation encoder",
    "translation+token-dropout": "translation encoder trained with token dropout",
}

# Where a table holds several settings of a measure, claims read the one that the published numbers used.
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
}


@runtime_checkable
class Reading(Protocol):
    """Anything that finds a panel in the tables, of the trained models or of their untrained controls."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the tables it reads."""
        ...

    def panel(self, tables: Tables) -> Panel:
        """The curve of each seed.

        Raises:
            Absent: The tables do not hold it.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A measure of one objective's models, layer by layer."""

    table: str
    objective: Objective
    where: Mapping[str, Any] = field(default_factory=dict)
    first_layer: int = 0
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.table,)

    def panel(self, tables: Tables) -> Panel:
        columns = ["seed", "trained", "layer", self.number, *self.where]
        frame = tables.rows(self.table, Spec(self.objective), columns, trained=self.trained)
        known = {"seed", "layer", self.number, "replicates", *self.where, *_SETTINGS}
        frame = chosen(frame[[column for column in frame.columns if column in known]], self.where)
        require_rows(frame, tables.table(self.table), self.table, self.objective, self.trained, self.where)
        return _panel_of(frame, ["seed"], self.first_layer, self.number, self.table)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskDistance:
    """The distance between the models of two objectives that grew from the same seed, at each layer."""

    first: Objective
    second: Objective
    first_layer: int = 1
    trained: bool = True
    number: Number = "value"
    table: str = "model_distance"

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.table,)

    def panel(self, tables: Tables) -> Panel:
        frame = _distances(self, tables, self.first, self.second)
        frame = chosen(frame[frame["seed_a"] == frame["seed_b"]], {})
        if frame.empty:
            names = f"{OBJECTIVE_NAMES[self.first]} and {OBJECTIVE_NAMES[self.second]}"
            raise Absent(f"no distance between {_state(self.trained)} {names} of one seed was measured")
        return _panel_of(frame, ["seed_a"], self.first_layer, self.number, self.table)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedDistance:
    """The distance between two models of one objective that differ in their seed, at each layer."""

    objective: Objective
    first_layer: int = 1
    trained: bool = True
    number: Number = "value"
    table: str = "model_distance"

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.table,)

    def panel(self, tables: Tables) -> Panel:
        frame = _distances(self, tables, self.objective, self.objective)
        frame = chosen(frame[frame["seed_a"] != frame["seed_b"]], {})
        if frame.empty:
            raise Absent(f"no distance between {_state(self.trained)} models of two seeds was measured (one seed?)")
        return _panel_of(frame, ["seed_a", "seed_b"], self.first_layer, self.number, self.table)


def chosen(frame: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of `where` and, for settings it leaves open, of the published setting or the only one there is."""
    keep = np.ones(len(frame), dtype=bool)
    for column, wanted in where.items():
        keep &= _equals(frame, column, wanted)
    for column, wanted in _SETTINGS.items():
        if column in frame.columns and column not in where and len(set(frame[column].to_numpy()[keep])) > 1:
            keep &= _equals(frame, column, wanted)
    return frame.loc[keep]


def _equals(frame: pd.DataFrame, column: str, wanted: Any) -> np.ndarray:
    return np.asarray([value == wanted for value in frame[column]], dtype=bool)


def require_rows(
    frame: pd.DataFrame,
    whole: pd.DataFrame,
    table: str,
    objective: str,
    trained: bool,
    where: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Say what is missing where `frame`, a part of the table `whole`, is empty."""
    if not frame.empty:
        return
    labels = zip(whole["objective"].dropna(), whole["variant"], strict=True)
    present = sorted({Spec(*label).label for label in labels})
    if objective not in present:
        raise Absent(f"there is no {OBJECTIVE_NAMES[objective]} among the models (there are: {', '.join(present)})")
    which = f" with {' and '.join(f'{name} {wanted}' for name, wanted in where.items())}" if where else ""
    raise Absent(f"{table} has no matching rows{which} of the {_state(trained)} {OBJECTIVE_NAMES[objective]}")


def replicates_of(frame: pd.DataFrame) -> np.ndarray:
    """The replicates of each row, (rows, R), cut to their common length; R is 0 where a row has none."""
    if "replicates" not in frame.columns or frame.empty:
        return np.empty((len(frame), 0))
    lists = [np.asarray([] if row is None else row, dtype=float).ravel() for row in frame["replicates"]]
    common = min(len(row) for row in lists)
    return np.stack([row[:common] for row in lists])


def gather(reads: Mapping[str, Reading], tables: Tables, within: set[int] | None = None) -> dict[str, Panel]:
    """The panels of a claim over the seeds that all of them have.

    Raises:
        Absent: One is not there, or they are of models of different depth.
    """
    panels, missing = {}, []
    for name, reading in reads.items():
        try:
            panels[name] = reading.panel(tables)
        except Absent as absent:
            missing.append(str(absent))
        except (KeyError, ValueError, TypeError, IndexError):  # a damaged table concerns only its claims
            missing.append(
                f"the table {', '.join(reading.sources)} lacks rows or columns, or holds values of other kinds"
            )
    if missing:
        raise Absent("; ".join(dict.fromkeys(missing)))
    seeds = set.intersection(*(panel.seeds for panel in panels.values()), *([within] if within is not None else []))
    if len({panel.layers[-1] for panel in panels.values()}) > 1:
        raise Absent("the models differ in depth")
    return {name: panel.only(seeds) for name, panel in panels.items()}


def untrained(reads: Mapping[str, Reading]) -> dict[str, Reading]:
    """The same readings of the untrained controls."""
    return {name: replace(reading, trained=False) for name, reading in reads.items()}  # type: ignore[type-var]


def baselines(reads: Mapping[str, Reading]) -> dict[str, Reading]:
    """The baselines of the same readings (shuffled labels, shuffled rows, or chance)."""
    return {name: replace(reading, number="baseline") for name, reading in reads.items()}  # type: ignore[type-var]


def _panel_of(frame: pd.DataFrame, unit: list[str], first_layer: int, number: Number, table: str) -> Panel:
    frame = frame.loc[frame["layer"] >= first_layer].sort_values(by=[*unit, "layer"])
    rows = [tuple(int(seed) for seed in seeds) for seeds in frame[unit].to_numpy()]
    curves = {key: frame.loc[[row == key for row in rows]] for key in dict.fromkeys(rows)}
    layers = {tuple(int(layer) for layer in group["layer"]) for group in curves.values()}
    check_layers(layers, first_layer, table)
    values = np.stack([group[number].to_numpy(dtype=float) for group in curves.values()])
    if not np.isfinite(values).all():
        raise Absent(f"{table} holds no number ({number}) at some layers")
    (only,) = layers
    replicates = replicates_of(frame) if number == "value" else np.empty((len(frame), 0))
    stacked = replicates.reshape(len(curves), len(only), -1) if replicates.size else np.empty((*values.shape, 0))
    return Panel(units=tuple(curves), layers=only, values_UK=values, replicates_URK=stacked.transpose(0, 2, 1))


def check_layers(layers: set[tuple[int, ...]], first_layer: int, table: str) -> None:
    """Say which layers are missing, doubled or too few; `layers` are those of each model."""
    if len(layers) > 1:
        raise Absent(f"{table} holds different layers for different seeds")
    only = next(iter(layers), ())
    if only != tuple(range(first_layer, first_layer + len(only))):
        raise Absent(f"{table} lacks a layer or holds one twice: it has {', '.join(map(str, only)) or 'none'}")
    if len(only) < 3:
        raise Absent(f"the model is too shallow: {table} has {len(only)} layers from layer {first_layer} on, needed 3")


def _distances(reading: TaskDistance | SeedDistance, tables: Tables, first: str, second: str) -> pd.DataFrame:
    columns = ["seed_a", "seed_b", "trained", "layer", reading.number]
    return tables.pairs(reading.table, Spec(first), Spec(second), columns, trained=reading.trained)


def _state(trained: bool) -> str:
    return "trained" if trained else "untrained"
