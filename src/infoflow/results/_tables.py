"""Tables in Python, and as Parquet files that carry their own documentation and provenance."""

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infoflow.foundation import UserError, atomic_write, public_provenance, shown_by

from ._schema import DType, TableSchema

_HIDDEN = "replicates"  # hundreds of numbers in each row


class Table(pd.DataFrame):
    """A data frame of a measure; selections keep the class and the `schema`."""

    _metadata = ["schema"]  # noqa: RUF012 (pandas' way to carry attributes along)
    schema: TableSchema | None

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: TableSchema | None = None) -> "Table":
        """Wrap a frame without copying its numbers."""
        table = cls(frame)
        object.__setattr__(table, "schema", schema)
        return table

    @property
    def _constructor(self) -> type["Table"]:
        return Table

    @property
    def shown(self) -> pd.DataFrame:
        """The plain frame without replicates."""
        return pd.DataFrame(self.drop(columns=_HIDDEN, errors="ignore"))

    _repr_html_ = shown_by("table_shown")  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.shown)

    def to_string(self, *arguments: Any, **options: Any) -> Any:
        """As in pandas, with every column."""
        return pd.DataFrame(self).to_string(*arguments, **options)


_SCHEMA_KEY, _PROVENANCE_KEY = b"infoflow.schema", b"infoflow.provenance"
_CHECKSUM_KEY = b"infoflow.checksum"  # Parquet's own checksums cover the pages, not their metadata
_MAGIC = b"PAR1"
_LOWEST = -2  # -1: embeddings, -2: the head of a task
_HIGHEST = 100_000  # far above the number of layers or heads of any model
_COUNTED = ("layer", "next_layer", "layer_a", "layer_b", "head", "head_a", "head_b")


class StoredTable(NamedTuple):
    frame: pd.DataFrame
    schema: TableSchema
    provenance: dict[str, Any]


def write_table(
    path: Path | str, frame: pd.DataFrame, schema: TableSchema, origin: dict[str, Any] | None = None
) -> Path:
    """Write a table atomically, with `origin` inside (default: this process's provenance, without folders)."""
    path = Path(path)
    check_replaceable(path)
    table = pa.Table.from_pandas(schema.conform(frame), preserve_index=False)
    notes = {
        **(table.schema.metadata or {}),
        _SCHEMA_KEY: json.dumps(schema.to_json()).encode(),
        _PROVENANCE_KEY: json.dumps(public_provenance() if origin is None else origin).encode(),
    }
    notes[_CHECKSUM_KEY] = _checksum(notes)
    with atomic_write(path) as temporary:
        pq.write_table(table.replace_schema_metadata(notes), temporary, write_page_checksum=True)
    return path


def _checksum(notes: Mapping[bytes, bytes]) -> bytes:
    """CRC-32 of a file's metadata without Arrow's own entry, in hexadecimal digits."""
    checked = sorted(item for item in notes.items() if item[0] not in (_CHECKSUM_KEY, b"ARROW:schema"))
    return b"%08x" % zlib.crc32(repr(checked).encode())


class Inside(NamedTuple):
    name: str | None
    """The table's name as infoflow wrote it; "" if infoflow did not write the file, None if it is damaged."""
    run: str = ""  # the identity of the run for which it was written


def inside(path: Path) -> Inside:
    """The name and the run of the table in a file."""
    try:
        notes = pq.read_metadata(path).metadata or {}
    except (pa.ArrowException, OSError):
        return Inside(None if _may_be_damaged(path) else "")
    if _SCHEMA_KEY not in notes:
        return Inside("")
    try:
        name = str(json.loads(notes[_SCHEMA_KEY])["name"])
        run = str(json.loads(notes[_PROVENANCE_KEY]).get("run", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Inside(None)
    return Inside(name, run) if _is_whole(notes) else Inside(None)


def _is_whole(notes: Mapping[bytes, bytes]) -> bool:
    """Whether a file's metadata is as it was written; earlier versions recorded no checksum."""
    return notes.get(_CHECKSUM_KEY, _checksum(notes)) == _checksum(notes)


def check_replaceable(path: Path) -> None:
    """Check that the path is free, or holds a table of infoflow or a damaged one."""
    if path.is_dir():
        raise UserError(f"{path} is a folder, but a file must be written there. Move it, and run the command again.")
    if path.exists() and inside(path).name == "":
        raise UserError(
            f"{path} was not written by infoflow, and a table of that name would replace it. "
            "Move it, or choose another --out."
        )


def _may_be_damaged(path: Path) -> bool:
    """Whether a file that is not Parquet may once have been one: it begins like one, or is empty."""
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    return start == _MAGIC or not start.strip(b"\0")


def read_table(path: Path | str) -> StoredTable:
    path = Path(path)
    if not path.exists():
        raise UserError(f"There is no table {path}. Run the analysis first, or check the run folder's name.")
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        _ = table.column_names  # raises if a name is not UTF-8
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UserError(
            f"{path} is not a readable Parquet table: {reason}. Delete it and run the command that wrote it again."
        ) from None
    notes = table.schema.metadata or {}
    if _SCHEMA_KEY not in notes:
        raise UserError(f"{path} was not written by infoflow: it carries no description of its columns.")
    if not _is_whole(notes):
        raise UserError(
            f"{path} is damaged: its description of its columns has changed since it was written. "
            "Delete it and run the command that wrote it again."
        )
    try:
        schema = TableSchema.from_json(json.loads(notes[_SCHEMA_KEY]))
        origin = json.loads(notes[_PROVENANCE_KEY])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(
            f"{path} describes its columns in a way that this version of infoflow does not understand. "
            "Delete it and run the command again, or update infoflow: git pull and make install."
        ) from None
    check_columns(path, table, schema)
    return StoredTable(table.to_pandas(), schema, origin if isinstance(origin, dict) else {})


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)


def _is_floats(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return pa.types.is_null(kind)  # a table without rows has this type
    return pa.types.is_floating(kind.value_type) or pa.types.is_null(kind.value_type)


_KINDS: dict[DType, Callable[[pa.DataType], bool]] = {
    "string": _is_text,
    "int64": pa.types.is_integer,
    "float64": pa.types.is_floating,
    "bool": pa.types.is_boolean,
    "list<float64>": _is_floats,
}


def check_columns(path: Path, table: pa.Table, schema: TableSchema) -> None:
    """Refuse a table whose columns differ from its description."""
    for column in schema.columns:
        if column.name not in table.column_names:
            raise _damaged(path, f"it has no column {column.name}")
        values = table.column(column.name)
        if column.dtype not in _KINDS or not _KINDS[column.dtype](values.type):
            raise _damaged(path, f"its column {column.name} must be of type {column.dtype}. Got {values.type}")
        if column.dtype in ("int64", "bool") and values.null_count:
            raise _damaged(
                path, f"its column {column.name} must have a value in every row. {values.null_count} have none"
            )
        if column.dtype == "int64" and column.name in _COUNTED and len(values):
            ends = pc.min_max(values).as_py()
            if ends["max"] > _HIGHEST or ends["min"] < _LOWEST:
                got = ends["max"] if ends["max"] > _HIGHEST else ends["min"]
                raise _damaged(path, f"its column {column.name} must lie in {_LOWEST}..{_HIGHEST:,}. Got {got}")


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is damaged: {reason}. Delete it and run the command that wrote it again.")
