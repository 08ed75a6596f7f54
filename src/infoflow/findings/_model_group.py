"""The models that claims are tested on: of one architecture, at one point of training and before it.

Readings get model rows only from here, so that no number ever mixes two models of one objective and seed.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import numpy as np
import pandas as pd

from infoflow.results import END, TABLES, UNTRAINED, AmbiguousModels, Spec, first_architecture, select, with_keys
from infoflow.training import SUFFIX

from ._zoo import CAUSAL as CAUSAL
from ._zoo import MASKED as MASKED
from ._zoo import NAMES as NAMES
from ._zoo import OBJECTIVES as OBJECTIVES
from ._zoo import TOKEN_DROPOUT as TOKEN_DROPOUT
from ._zoo import TRANSLATION as TRANSLATION

Tables = Mapping[str, pd.DataFrame]
Found = TypeVar("Found")


class Absent(Exception):
    """A measurement that a claim needs is missing; the message for the findings table names it."""


class Ambiguous(Absent):
    """Several models were found where one was expected; the claim cannot fall back to leaving the table out."""


class _KeyedTables(Mapping[str, pd.DataFrame]):
    """Tables with all columns that identify models, completed on first use.

    A table that names no architecture comes from an earlier version; its models belong to the first one.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables, self._known = tables, {}
        self.first_architecture = first_architecture(tables)

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._known:
            frame = self._tables[name]
            if name == "alignment" and "objective" not in frame:  # its models were unnamed, but always the same
                frame = frame.assign(objective=MASKED.name)
            frame = frame if frame.empty else with_keys(frame)
            columns = [c for c in ("architecture", "architecture_a", "architecture_b") if c in frame]
            unnamed = {c: self.first_architecture for c in columns if not any(frame[c])}
            self._known[name] = frame.assign(**unnamed)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


@dataclass(frozen=True, slots=True, eq=False)
class ModelGroup:
    """One model of each objective and seed, trained from random weights, with its tables."""

    tables: Tables
    architecture: str
    update: int
    _known: dict = field(default_factory=dict, repr=False)  # results found so far, shared by all groups of a run

    def rows(self, name: str, objective: Spec, columns: Iterable[str] = (), *, trained: bool = True) -> pd.DataFrame:
        """The rows of a table about the objective's models, or about the same models before training.

        Raises:
            Absent: The table is absent or lacks one of the columns, or two models share a seed.
        """
        frame = self.table(name, ["objective", *columns])
        return self.once((name, objective), lambda: self._select(frame, objective, trained), trained=trained)

    def pairs(
        self, name: str, first: Spec, second: Spec, columns: Iterable[str] = (), *, trained: bool = True
    ) -> pd.DataFrame:
        """The rows of a table of pairs about models of these objectives, always with `first` as model a."""
        frame = self.table(name, ["objective_a", "objective_b", *columns])

        def select_both(one: Spec, other: Spec) -> pd.DataFrame:
            return self._select(self._select(frame, one, trained, "_a"), other, trained, "_b")

        def select_pairs() -> pd.DataFrame:
            parts = [select_both(first, second)]
            parts += [select_both(second, first).rename(columns=_other_side)] if first != second else []
            filled = [part for part in parts if not part.empty]
            return pd.concat(filled).sort_index(kind="stable") if filled else parts[0]

        return self.once((name, first, second), select_pairs, trained=trained)

    def course(self, name: str, objective: Spec, columns: Iterable[str] = ()) -> pd.DataFrame:
        """The rows of a table over training about the objective's models, at all checkpoints.

        Raises:
            Absent: The table is absent or lacks one of the columns.
        """
        frame = self.table(name, ["objective", "update", *columns])
        own = {
            "objective": objective.name,
            "variant": objective.variant,
            "architecture": self.architecture,
            "start": "",
        }
        return frame[np.all([frame[column] == value for column, value in own.items()], axis=0)]

    def table(self, name: str, columns: Iterable[str] = ()) -> pd.DataFrame:
        """The whole table with all models, which must have these columns."""
        frame = self.tables.get(name)
        if frame is None or frame.empty:
            raise Absent(f"the table {name} is absent{_made_by(name)}")
        missing = [column for column in columns if column not in frame.columns]
        if missing:
            raise Absent(f"the table {name} has no column {', '.join(missing)}")
        return frame

    def once(self, key: Hashable, find: Callable[[], Found], *, trained: bool) -> Found:
        """The result of `find`, computed once; for untrained models, once for all updates of an architecture."""
        where = (self.architecture, self.update if trained else UNTRAINED, trained, key)
        if where not in self._known:
            self._known[where] = find()
        return self._known[where]

    def _select(self, frame: pd.DataFrame, objective: Spec, trained: bool, side: str = "") -> pd.DataFrame:
        how = {"variant": objective.variant, "architecture": self.architecture, "side": side}
        try:
            return select(frame, objective.name, update=self.update if trained else UNTRAINED, **how)
        except AmbiguousModels as ambiguous:
            raise Ambiguous(str(ambiguous).rstrip(".")) from None


def model_groups(tables: Tables, names: Iterable[str]) -> list[ModelGroup]:
    """The groups of models in the named tables: the first architecture and the end of training come first.

    Without any trained model, there is one empty group.
    """
    keyed = _KeyedTables(tables)
    found = dict.fromkeys(place for name in names if name in keyed for place in _places(keyed[name]))
    found = found or {(keyed.first_architecture, END): None}
    order = list(dict.fromkeys([keyed.first_architecture, *(architecture for architecture, _ in found)]))
    places = sorted(found, key=lambda place: (order.index(place[0]), place[1] != END, place[1]))
    known: dict = {}
    return [ModelGroup(keyed, architecture, update, known) for architecture, update in places]


def group_of(tables: Tables, architecture: str, update: int) -> ModelGroup:
    """The models of one architecture and update, from tables that cover no others."""
    return ModelGroup(_KeyedTables(tables), architecture, update)


def _places(frame: pd.DataFrame) -> Iterator[tuple[str, int]]:
    """Architectures and updates of a table's trained models; for pairs, those of both models.

    Tables over training are read as a whole, at its end.
    """
    if "lr_share" in frame.columns:
        frame = frame.assign(update=END)
    for side in ("", "_a"):
        columns = [f"{name}{side}" for name in ("architecture", "update", "start")]
        if set(columns) <= set(frame.columns):
            for architecture, update, start in frame[columns].drop_duplicates().itertuples(index=False, name=None):
                if update != UNTRAINED and start == "":
                    yield str(architecture), int(update)


@cache
def _other_side(column: str) -> str:
    return {"_a": f"{column[:-2]}_b", "_b": f"{column[:-2]}_a"}.get(column[-2:], column)


def _made_by(name: str) -> str:
    """What a run needs to have the table, to be appended to a sentence; "" if every study has it."""
    measured = TABLES.get(name.removesuffix(SUFFIX))
    if measured is None:
        return ""
    needs = [measured.made_by] if measured.made_by else []
    if name.endswith(SUFFIX):
        heavy = "" if measured.light else f", and {measured.name} in their light or heavy,"
        needs.append(f"a plan with a schedule in [checkpoints]{heavy} makes it at checkpoints")
    return ": " + "; ".join(dict.fromkeys(needs)) if needs else ""
