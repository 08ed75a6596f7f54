"""The folder that a run leaves: run.json, models/, tables/, report.html."""

import json
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.foundation import UserError, atomic_write, current_display, shown_by

from ._manifest import read_manifest
from ._schema import TableSchema
from ._select import with_keys
from ._table import Table
from ._tables import StoredTable, name_inside, read_table, write_table

RUN_VERSION = 1
_LONGEST = 200  # characters of a table's name; what is longer is damage
_NAMES = ".names"  # in the folder of tables: an emptied file is told by its name alone


class RunFolder:
    """Reads and writes one run folder; every file in it appears whole or not at all."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def existing(cls, path: Path | str) -> "RunFolder":
        """The run folder at `path`.

        Raises:
            UserError: There is none.
        """
        folder = cls(path)
        if not folder._manifest.exists():
            raise UserError(
                f"{path} is not a run folder: it has no run.json. "
                "Give the folder that `infoflow study` or `infoflow analyze` wrote (its --out)."
            )
        return folder

    @classmethod
    def of(cls, run: "RunFolder | os.PathLike[str] | str") -> "RunFolder":
        """The run folder that is meant: itself, or the one at a path (a `Run` is one).

        Raises:
            UserError: There is none.
        """
        return run if isinstance(run, RunFolder) else cls.existing(Path(run))

    def require_tables(self) -> None:
        """Refuse a run without results, and say which of them are gone.

        Raises:
            UserError: It holds no tables yet.
        """
        if not len(self.tables):
            raise UserError(f"{self.path} holds no tables yet. Let the command that began it finish there first.")
        if gone := self.tables.gone:
            current_display().warn(
                f"{self.path} is damaged: of the tables that were written there, {', '.join(gone)} "
                f"{'are' if len(gone) > 1 else 'is'} gone, with the claims and figures that need "
                f"{'them' if len(gone) > 1 else 'it'}. Run the command that wrote the folder again."
            )

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def _manifest(self) -> Path:
        return self.path / "run.json"

    @cached_property
    def tables(self) -> "Tables":
        return Tables(self.path / "tables")

    def read(self) -> dict[str, Any]:
        """The contents of run.json; empty where the run is new."""
        if not self._manifest.exists():
            return {}
        manifest = read_manifest(self._manifest)
        if manifest.get("version", RUN_VERSION) > RUN_VERSION:
            raise UserError(f"{self.path} was written by a newer infoflow. Upgrade: pip install --upgrade infoflow")
        return manifest

    def update(self, **entries: Any) -> None:
        """Replace the given top-level entries of run.json."""
        manifest = {"version": RUN_VERSION, **self.read(), **entries}
        with atomic_write(self._manifest) as temporary:
            temporary.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class Tables(Mapping[str, pd.DataFrame]):
    """The run's tables by name, read when asked for; Parquet files of others in the folder are left alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cache: dict[str, StoredTable] = {}
        self._names: dict[tuple[str, int, int], str | None] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.stored(name).frame

    def __iter__(self):
        return iter(sorted(path.stem for path in self._files() if self._name_inside(path) in (path.stem, None)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def stored(self, name: str) -> StoredTable:
        """The table with its schema and provenance."""
        if name not in self._cache:
            if name not in list(self):
                raise KeyError(name)
            table = read_table(self._path / f"{name}.parquet")
            self._cache[name] = table._replace(frame=with_keys(table.frame))
        return self._cache[name]

    @property
    def gone(self) -> list[str]:
        """Names of the tables that infoflow wrote here and did not remove, and that are no more: their file was
        removed, or is somebody else's."""
        there = set(self)
        return [name for name in self._written() or () if name not in there]

    def clear(self) -> None:
        """Remove every table that infoflow wrote, and nothing else."""
        self.remove([*(path.stem for path in self._files()), *self.gone])
        self._cache.clear()

    def remove(self, names: Iterable[str]) -> None:
        """Remove infoflow's tables that should no longer be there, where they are."""
        names = set(names)
        for name in names:
            path = self._path / f"{name}.parquet"
            if path.is_file() and self._name_inside(path) == name:
                path.unlink()
            self._cache.pop(name, None)
        if names & {*(written := self._written() or ())}:
            self._note_names([name for name in written if name not in names])

    def _files(self) -> list[Path]:
        return [path for path in self._path.glob("*.parquet") if path.is_file() and not path.name.startswith(".")]

    def _name_inside(self, path: Path) -> str | None:
        """A copy of infoflow's table under another name is whoever's made it, and so is what is no table now."""
        stat = path.stat()
        key = (path.name, stat.st_mtime_ns, stat.st_size)
        if key not in self._names:
            inside = name_inside(path)
            self._names[key] = "" if inside is None and not self._may_be_ours(path.stem) else inside
        return self._names[key]

    def _may_be_ours(self, name: str) -> bool:
        """Whether a file without content may be what a damage left of a table: an earlier version kept no names."""
        names = self._written()
        return names is None or name in names

    def _written(self) -> list[str] | None:
        """Names of all tables that were written here and not removed; None where no list was kept, or nothing is left
        of it."""
        path = self._path / _NAMES
        words = path.read_text(encoding="utf-8", errors="replace").split() if path.is_file() else []
        return [word for word in words if word.isprintable() and len(word) < _LONGEST] or None

    def _note_names(self, names: Iterable[str]) -> None:
        with atomic_write(self._path / _NAMES) as temporary:
            temporary.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")

    def write(self, frame: pd.DataFrame, schema: TableSchema, origin: dict[str, Any] | None = None) -> Path:
        """Write the table under its schema's name."""
        self._cache.pop(schema.name, None)
        if schema.name not in (names := self._written() or []):
            self._note_names([*names, schema.name])
        return write_table(self._path / f"{schema.name}.parquet", frame, schema, origin)


class ShownTables(Tables):
    """A run's tables as people look at them: each knows what it is, and hides its replicates when shown."""

    @classmethod
    def of(cls, tables: Tables) -> "ShownTables":
        """The same tables: what was read of them is shared."""
        shown = cls(tables._path)
        shown._cache, shown._names = tables._cache, tables._names
        return shown

    def __getitem__(self, name: str) -> Table:
        stored = self.stored(name)
        return Table.of(stored.frame, stored.schema)

    _repr_html_ = shown_by("infoflow.report", "tables_shown")

    def __repr__(self) -> str:
        return f"<{len(self)} tables of {self._path.parent.name}: {', '.join(list(self)[:6])}{', …' * (len(self) > 6)}>"
