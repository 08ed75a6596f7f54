"""A run's tables with the rows that a page shows: the one place where the report's figures get their models from."""

from collections.abc import Iterable, Mapping

import pandas as pd

from infoflow.results import END, UNTRAINED, AmbiguousModels, RunFolder, TableSchema, with_keys

from ._numbers import listed
from ._shown_models import ShownModels


class ModelTables:
    """The rows of the models that are shown, with the keys of their lines (see `ShownModels.named`).

    A table without such rows is not among them, nor is one in which two models of an objective and a seed are left;
    `notes` tells of both.
    """

    def __init__(self, run: RunFolder, models: ShownModels) -> None:
        self.models = models
        self._run = run
        self._found: dict[str, pd.DataFrame] = {}
        self._not_drawn: dict[str, list[str]] = {}
        self._refused: dict[str, str] = {}
        self._asked: dict[str, None] = {}

    @classmethod
    def of(cls, run: RunFolder) -> "ModelTables":
        return cls(run, ShownModels.of(run))

    def __getitem__(self, name: str) -> pd.DataFrame:
        self._asked[name] = None
        if name not in self._found:
            self._found[name] = self._read(name)
        if self._found[name].empty:
            raise KeyError(name)
        return self._found[name]

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> pd.DataFrame | None:
        """The table; None where there is none."""
        try:
            return self[name]
        except KeyError:
            return None

    def some(self, names: Iterable[str]) -> dict[str, pd.DataFrame]:
        """Those of the tables that there are."""
        return {name: self[name] for name in names if name in self}

    @property
    def own(self) -> list[str]:
        """Names of the tables of the user's own measures."""
        names = self._run.read().get("own")
        return [name for name in names if name in self._run.tables] if isinstance(names, list) else []

    def schema(self, name: str) -> TableSchema:
        """What the table says of its columns."""
        return self._run.tables.stored(name).schema

    def whole(self, name: str) -> pd.DataFrame | None:
        """The rows of all architectures, for a figure that shows them itself, with the keys of their lines; None where
        there are none."""
        if name not in self._run.tables:
            return None
        frame = self._run.tables[name]
        frame = frame[(frame["start"] == "") & frame["update"].isin([END, UNTRAINED])]
        return frame.assign(series=self.models.line_keys(frame)) if len(frame) else None

    def over_training(self, name: str) -> pd.DataFrame | None:
        """The rows of the shown models at every update, or of their whole course, with the keys of their lines; None
        where there are none."""
        self._asked[name] = None
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

    def of_run(self, name: str) -> pd.DataFrame | None:
        """A table about several runs, which no choice of models narrows; None where there is none."""
        return self._run.tables.get(name)

    def findings_over_training(self) -> pd.DataFrame | None:
        """The verdicts at every update, of the architecture that is shown; None where there are none."""
        if "findings_over_training" not in self._run.tables:
            return None
        frame = self._run.tables["findings_over_training"]
        own = frame[frame["architecture"].isin([self.models.architecture, ""])] if "architecture" in frame else frame
        return own if len(own) else None if frame.empty else frame

    def forget(self) -> None:
        """`notes` tell of what is asked for from here on."""
        self._asked.clear()

    def notes(self, beside: Mapping[str, str] | None = None) -> list[str]:
        """What the tables that were asked for hold and no figure shows, in words.

        `beside`: of architectures that are drawn beside the first one, what of each is not.
        """
        drawn = {f"the architecture {name}": words for name, words in (beside or {}).items()}
        found = [words for name in self._asked for words in self._not_drawn.get(name, [])]
        left = dict.fromkeys(told for words in found if (told := drawn.get(words, words)))
        refused = {reason: None for name in self._asked if (reason := self._refused.get(name))}
        return [*([f"Not drawn: {listed(list(left))}."] if left else []), *refused]

    def _read(self, name: str) -> pd.DataFrame:
        if name not in self._run.tables:
            return pd.DataFrame()
        frame = self._run.tables[name]
        try:
            shown = self.models.named(frame) if len(frame) else frame
        except AmbiguousModels as error:
            self._refused[name] = f"Not drawn: what the table {name} tells. {error}"
            return pd.DataFrame()
        self._not_drawn[name] = _others(frame.drop(shown.index), self.models)
        return shown


def _others(frame: pd.DataFrame, models: ShownModels) -> list[str]:
    """What sets these models apart from those that are shown."""
    told = []
    for side in [side for side in ("", "_a", "_b") if f"update{side}" in frame]:
        families = [family for family in frame[f"architecture{side}"].unique() if family != models.architecture]
        told += [f"the architecture {family}" for family in families if models.by == "objective"]
        told += [f"models that began from {start}" for start in frame[f"start{side}"].unique() if start]
        updates = sorted(int(update) for update in frame[f"update{side}"].unique() if update not in (END, UNTRAINED))
        told += [f"the state after {update:,} updates" for update in updates]
    return list(dict.fromkeys(told))
