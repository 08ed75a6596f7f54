"""The folder that a run writes: run.json, models/, tables/, report.html."""

import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow import foundation

from ._schema import TableSchema
from ._select import with_keys
from ._tables import Inside, StoredTable, Table, check_replaceable, inside, read_table, write_table

RUN_VERSION = 1
_LONGEST = 200  # characters of a table's name; longer names are damage
_NAMES = ".names"  # lists the tables in their folder, since an emptied file is known only by its name
_Check = Callable[[Any], bool]
_MOST = 1e15


class RunFolder:
    """Reads and writes one run folder; each file is written atomically."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def existing(cls, path: Path | str) -> "RunFolder":
        """The run folder at `path`.

        Raises:
            UserError: `path` is not a run folder.
        """
        folder = cls(path)
        if not folder._manifest.exists():
            raise foundation.UserError(
                f"{path} is not a run folder: it has no run.json. "
                "Give the folder that `infoflow study` or `infoflow analyze` wrote (its --out)."
            )
        return folder

    @classmethod
    def of(cls, run: "RunFolder | os.PathLike[str] | str") -> "RunFolder":
        """The run folder for a folder object, a path, or a `Run`.

        Raises:
            UserError: `run` is not a run folder.
        """
        return run if isinstance(run, RunFolder) else cls.existing(Path(run))

    def require_tables(self) -> None:
        """Refuse a run without results, and name the missing ones.

        Raises:
            UserError: The run has no tables yet.
        """
        foreign = self.tables.foreign
        if foreign and not len(self.tables):
            raise foundation.UserError(
                f"{self.path} must hold tables of its own. All of its tables were written for another run: "
                f"{', '.join(foreign)}. Name the folder of that run, or run the command that wrote this one again."
            )
        if not len(self.tables):
            raise foundation.UserError(
                f"{self.path} holds no tables yet. Let the command that began it finish there first."
            )
        if foreign:
            foundation.current_display().warn(
                f"{self.path} holds tables that were written for another run. They are left out: {', '.join(foreign)}. "
                "Run the command that wrote this folder again."
            )
        if gone := [name for name in self.tables.gone if name not in foreign]:
            foundation.current_display().warn(
                f"{self.path} is damaged: tables that were written there are missing ({', '.join(gone)}), with the "
                "claims and figures that need them. Run the command that wrote the folder again."
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
        return Tables(self.path / "tables", self.identity)

    def identity(self) -> str:
        """An identity shared only by run.json and the tables of this run; "" in earlier versions."""
        return str(self.read().get("id", ""))

    def read(self) -> dict[str, Any]:
        """The contents of run.json; empty for a new run."""
        if not self._manifest.exists():
            return {}
        manifest = read_manifest(self._manifest)
        if manifest.get("version", RUN_VERSION) > RUN_VERSION:
            raise foundation.UserError(
                f"{self.path} was written by a newer infoflow. Update yours: git pull and make install."
            )
        return manifest

    def update(self, **entries: Any) -> None:
        """Replace the given top-level entries of run.json."""
        before = self.read()
        if not before and not len(self.tables):  # tables that precede run.json have no identity
            before = {"id": secrets.token_hex(8)}
        manifest = {"version": RUN_VERSION, **before, **entries}
        with foundation.atomic_write(self._manifest) as temporary:
            temporary.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def record(self, **entries: Any) -> None:
        """Like `update`, with this process's command and environment, and without warnings or failures by default."""
        made = foundation.provenance()
        self.update(**{"warnings": [], "failures": [], "command": made["command"], "provenance": made} | entries)


class Tables(Mapping[str, pd.DataFrame]):
    """The run's tables by name, read on access; other Parquet files in the folder are ignored.

    Args:
        path: The folder of the tables.
        identity: Returns the identity of the run; tables with another identity are left out.
    """

    def __init__(self, path: Path, identity: Callable[[], str]) -> None:
        self._path, self._identity = path, identity
        self._cache: dict[str, StoredTable] = {}
        self._inside: dict[tuple[str, int, int], Inside] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.stored(name).frame

    def __iter__(self):
        run = self._identity()
        return iter(sorted(path.stem for path in self._files() if self._is_own(path, run)))

    @property
    def foreign(self) -> list[str]:
        """Names of the tables in the folder that infoflow wrote for another run."""
        found = {path.stem: self._inside_of(path) for path in self._files()}
        run = self._identity()
        return sorted(name for name, table in found.items() if table.name == name and table.run != run)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def stored(self, name: str) -> StoredTable:
        """The table with its schema and provenance."""
        if name not in self._cache:
            if name not in (held := list(self)):
                known = f"Its tables: {', '.join(held) or 'none'}."
                raise KeyError(
                    f"{self._path.parent.name} has no table {name}.{foundation.did_you_mean(name, held)} {known}"
                )
            table = read_table(self._path / f"{name}.parquet")
            frame = with_keys(table.frame)
            frame.attrs["unit"] = table.schema.unit  # keeps the bounds of the values when rows are averaged
            self._cache[name] = table._replace(frame=frame)
        return self._cache[name]

    @property
    def gone(self) -> list[str]:
        """Names of tables that infoflow wrote here and whose files were removed, or replaced by other files."""
        there = set(self)
        return [name for name in self._written() or () if name not in there]

    def check_replaceable(self, names: Iterable[str]) -> None:
        """Refuse, before any work, to overwrite foreign files with tables of these names.

        Raises:
            UserError: A foreign file has such a name.
        """
        names = set(names)
        for path in sorted(self._path.glob("*.parquet")):
            if path.stem in names:
                check_replaceable(path)

    def clear(self) -> None:
        """Remove every table that infoflow wrote, and nothing else."""
        self.remove([*(path.stem for path in self._files()), *self.gone])
        self._cache.clear()

    def remove(self, names: Iterable[str]) -> None:
        """Remove the named tables of infoflow if they exist."""
        names, run = set(names), self._identity()
        for name in names:
            path = self._path / f"{name}.parquet"
            if path.is_file() and self._inside_of(path) == (name, run):
                path.unlink()
            self._cache.pop(name, None)
        if names & {*(written := self._written() or ())}:
            self._note_names([name for name in written if name not in names])

    def _files(self) -> list[Path]:
        return [path for path in self._path.glob("*.parquet") if path.is_file() and not path.name.startswith(".")]

    def _is_own(self, path: Path, run: str) -> bool:
        """Whether the table is infoflow's own: not a renamed copy, nor a file that is no longer a table."""
        found = self._inside_of(path)
        return self._may_be_ours(path.stem) if found.name is None else found == (path.stem, run)

    def _inside_of(self, path: Path) -> Inside:
        """The file's description of itself, read once."""
        stat = path.stat()
        key = (path.name, stat.st_mtime_ns, stat.st_size)
        if key not in self._inside:
            self._inside[key] = inside(path)
        return self._inside[key]

    def _may_be_ours(self, name: str) -> bool:
        """Whether an empty file may be a damaged table of ours; an earlier version did not record names."""
        names = self._written()
        return names is None or name in names

    def _written(self) -> list[str] | None:
        """Names of all tables that were written here and not removed; None if the list is missing or damaged."""
        path = self._path / _NAMES
        words = path.read_text(encoding="utf-8", errors="replace").split() if path.is_file() else []
        return [word for word in words if word.isprintable() and len(word) < _LONGEST] or None

    def _note_names(self, names: Iterable[str]) -> None:
        with foundation.atomic_write(self._path / _NAMES) as temporary:
            temporary.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")

    def write(self, frame: pd.DataFrame, schema: TableSchema, origin: dict[str, Any] | None = None) -> Path:
        """Write the table under its schema's name."""
        self._cache.pop(schema.name, None)
        if schema.name not in (names := self._written() or []):
            self._note_names([*names, schema.name])
        origin = foundation.public_provenance() if origin is None else origin
        return write_table(self._path / f"{schema.name}.parquet", frame, schema, {**origin, "run": self._identity()})


class ShownTables(Tables):
    """A run's tables for display: each knows its schema and hides its replicates."""

    @classmethod
    def of(cls, tables: Tables) -> "ShownTables":
        """The same tables for display; data that is already in memory is shared, not read again."""
        shown = cls(tables._path, tables._identity)
        shown._cache, shown._inside = tables._cache, tables._inside
        return shown

    def __getitem__(self, name: str) -> Table:
        stored = self.stored(name)
        return Table.of(stored.frame, stored.schema)

    _repr_html_ = foundation.shown_by("tables_shown")

    def __repr__(self) -> str:
        return f"<{len(self)} tables of {self._path.parent.name}: {', '.join(list(self)[:6])}{', …' * (len(self) > 6)}>"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST  # also rejects NaN


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _list_of(check: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


_KINDS: dict[str, tuple[_Check, str]] = {
    "version": (_is_whole, "a whole number"),
    "kind": (_is_text, "text"),
    "title": (_is_text, "text"),
    "command": (_is_text, "text"),
    "files": (_list_of(_is_text), "a list of texts"),
    "plan": (_is_object, "an object"),
    "corpus": (_is_object, "an object"),
    "provenance": (_is_object, "an object"),
    "models": (_list_of(_is_object), "a list of objects"),
    "failures": (_list_of(_is_object), "a list of objects"),
    "warnings": (_list_of(_is_text), "a list of texts"),
    "timings": (lambda value: _is_object(value) and all(map(_is_number, value.values())), "an object of seconds"),
    "seconds": (lambda value: value is None or _is_number(value), "a number"),
}


def read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = foundation.read_object(path)
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    for name, (check, kind) in _KINDS.items():
        if name in manifest and not check(manifest[name]):
            raise _damaged(path, f"{name} must be {kind}. Got {_short(manifest[name])}")
    return manifest


def _damaged(path: Path, reason: str) -> foundation.UserError:
    return foundation.UserError(f"{path} is damaged: {reason.rstrip('.')}. Start again in a new folder.")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
