"""A run's undamaged tables, restricted to the rows that a page shows; all figures take their models from here."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np
import pandas as pd

from infoflow.findings import FINDINGS_TABLE
from infoflow.foundation import current_display
from infoflow.results import END, TABLES, UNTRAINED, AmbiguousModels, RunFolder, TableSchema, with_keys
from infoflow.training import SUFFIX

from ._in_words import listed
from ._model_selection import ModelSelection

_Stated = TypeVar("_Stated")
DAMAGE = (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError, StopIteration)


def unless_damaged(tell: Callable[[], _Stated], otherwise: _Stated, name: str, left_out: list[str]) -> _Stated:
    """Return the result of `tell`; if the data are damaged, return `otherwise`, warn and add a line to `left_out`."""
    try:
        return tell()
    except DAMAGE as error:
        message = (
            f"The report leaves out {name}: a table or run.json lacks data that it needs ({kind_of(error)}). "
            "Repeat the run that wrote them."
        )
        current_display().warn(message)
        left_out.append(message)
        return otherwise


def kind_of(error: Exception) -> str:
    """What was missing or wrong, if the error says so."""
    if isinstance(error, KeyError) and error.args:
        return f"no {error.args[0]}"
    return "unexpected values" if isinstance(error, TypeError | AttributeError) else str(error)[:120]


class ModelTables:
    """The rows of the shown models, with the keys of their lines (see `ModelSelection.named`).

    Tables without such rows are left out, as are tables with two models for one objective and seed; `notes` reports
    both.
    """

    def __init__(self, run: RunFolder, models: ModelSelection) -> None:
        self.models = models
        self._run = run
        self._found: dict[str, pd.DataFrame] = {}
        self._not_drawn: dict[str, list[str]] = {}
        self._refused: dict[str, str] = {}
        self._tables_read: dict[str, None] = {}

    @classmethod
    def of(cls, run: RunFolder) -> "ModelTables":
        return cls(run, ModelSelection.of(run))

    def __getitem__(self, name: str) -> pd.DataFrame:
        self._tables_read[name] = None
        if name not in self._found:
            self._found[name] = self._read(name)
        if self._found[name].empty:
            raise KeyError(name)
        return self._found[name]

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> pd.DataFrame | None:
        """The table; None if it is missing."""
        try:
            return self[name]
        except KeyError:
            return None

    def some(self, names: Iterable[str]) -> dict[str, pd.DataFrame]:
        """The tables among `names` that exist, by name."""
        return {name: self[name] for name in names if name in self}

    @property
    def names(self) -> list[str]:
        return list(self._run.tables)

    def any_rows(self, name: str) -> pd.DataFrame | None:
        """The rows of any table that a page can show: of the shown models, over training, or of several runs.

        None if there are none.
        """
        found = self.get(name)
        if found is None and name not in self._refused:
            columns = set(self._run.tables[name].columns)
            if name.endswith(SUFFIX) or (name in TABLES and TABLES[name].over_training):
                found = self.over_training(name)
            elif not columns & {"model", "model_a"}:
                found = self.of_run(name)
        return None if found is None or found.empty else found

    @property
    def own(self) -> list[str]:
        """Names of the tables of the user's own measures."""
        names = self._run.read().get("own")
        return [name for name in names if name in self._run.tables] if isinstance(names, list) else []

    def schema(self, name: str) -> TableSchema:
        return self._run.tables.stored(name).schema

    def whole(self, name: str) -> pd.DataFrame | None:
        """The rows of all architectures with the keys of their lines, for figures of architectures; None if empty."""
        if name not in self._run.tables:
            return None
        frame = self._run.tables[name]
        frame = frame[(frame["start"] == "") & frame["update"].isin([END, UNTRAINED])]
        return frame.assign(series=self.models.line_keys(frame)) if len(frame) else None

    def over_training(self, name: str) -> pd.DataFrame | None:
        """The rows of the shown models over training, with the keys of their lines; None if there are none."""
        self._tables_read[name] = None
        if name not in self._run.tables:
            return None
        frame = with_keys(self._run.tables[name])
        if self.models.by == "objective":
            own = frame[(frame["start"] == "") & (frame["architecture"] == self.models.architecture)]
            self._not_drawn[name] = _others(frame.drop(own.index).assign(update=END), self.models)
            frame = own
        frame = frame.assign(series=self.models.line_keys(frame))
        frame = frame[frame["series"].isin([series.key for series in self.models.series])]
        return frame if len(frame) else None

    @property
    def names_over_training(self) -> list[str]:
        """Plain names of the run's tables that have rows at checkpoints."""
        measured = [name.removesuffix(SUFFIX) for name in self._run.tables if name.endswith(SUFFIX)]
        own = [table.name for table in TABLES.values() if table.over_training]
        return [name for name in (*measured, *own) if name in TABLES and name != FINDINGS_TABLE.name]

    def of_run(self, name: str) -> pd.DataFrame | None:
        """A table about several runs, whatever models are selected; None if it is missing."""
        return self._run.tables.get(name)

    def findings_over_training(self) -> pd.DataFrame | None:
        """The verdicts at every update for the shown architecture; None if there are none."""
        if FINDINGS_TABLE.at_checkpoints not in self._run.tables:
            return None
        frame = self._run.tables[FINDINGS_TABLE.at_checkpoints]
        own = frame[frame["architecture"].isin([self.models.architecture, ""])] if "architecture" in frame else frame
        return own if len(own) else None if frame.empty else frame

    def forget(self) -> None:
        """Restrict `notes` to tables that are read from here on."""
        self._tables_read.clear()

    def notes(self, others: Mapping[str, str] | None = None) -> list[str]:
        """Notes on rows that no figure shows, for the tables read so far.

        `others`: architectures drawn next to the first one, with what is not drawn for each.
        """
        drawn = {f"the architecture {name}": words for name, words in (others or {}).items()}
        found = [words for name in self._tables_read for words in self._not_drawn.get(name, [])]
        left = dict.fromkeys(stated for words in found if (stated := drawn.get(words, words)))
        refused = {reason: None for name in self._tables_read if (reason := self._refused.get(name))}
        return [*([f"Not drawn: {listed(list(left))}."] if left else []), *refused]

    def _read(self, name: str) -> pd.DataFrame:
        if name not in self._run.tables:
            return pd.DataFrame()
        frame = self._run.tables[name]
        try:
            shown = self.models.named(frame) if len(frame) else frame
        except AmbiguousModels as error:
            self._refused[name] = f"Not drawn: the table {name}. {error}"
            return pd.DataFrame()
        self._not_drawn[name] = _others(frame.drop(shown.index), self.models)
        if len(shown) and not bool(np.any(shown["trained"])):
            self._refused[name] = f"Not measured yet: {name}. So far, this table holds only untrained controls."
            return pd.DataFrame()
        return shown


def _others(frame: pd.DataFrame, models: ModelSelection) -> list[str]:
    """How these models differ from the shown ones."""
    stated = []
    for side in [side for side in ("", "_a", "_b") if f"update{side}" in frame]:
        families = [family for family in frame[f"architecture{side}"].unique() if family != models.architecture]
        stated += [f"the architecture {family}" for family in families if models.by == "objective"]
        stated += [f"models that began from {start}" for start in frame[f"start{side}"].unique() if start]
        updates = sorted(int(update) for update in frame[f"update{side}"].unique() if update not in (END, UNTRAINED))
        stated += [f"the state after {update:,} updates" for update in updates]
    return list(dict.fromkeys(stated))
