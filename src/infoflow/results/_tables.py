"""Tables as Parquet files that carry their own documentation and provenance."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from infoflow.foundation import UserError, atomic_write, public_provenance

from ._columns import check_columns
from ._schema import TableSchema

_SCHEMA_KEY, _PROVENANCE_KEY = b"infoflow.schema", b"infoflow.provenance"
_CHECKSUM_KEY = b"infoflow.checksum"  # Parquet's own sums are of the pages, not of what describes them
_MAGIC = b"PAR1"


class StoredTable(NamedTuple):
    """A table as it lies in a file: rows, schema, and where it comes from."""

    frame: pd.DataFrame
    schema: TableSchema
    provenance: dict[str, Any]


def write_table(
    path: Path | str, frame: pd.DataFrame, schema: TableSchema, origin: dict[str, Any] | None = None
) -> Path:
    """Write a table whole or not at all, with `origin` inside (default: this process's provenance, without folders).

    Raises:
        UserError: Another's file has that name.
    """
    path = Path(path)
    if not _is_replaceable(path):
        raise UserError(
            f"{path} was not written by infoflow, and a table of that name would replace it. "
            "Move it, or choose another --out."
        )
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
    """CRC-32 of everything that a file says of itself, but for Arrow's own note, in hexadecimal digits."""
    told = sorted(item for item in notes.items() if item[0] not in (_CHECKSUM_KEY, b"ARROW:schema"))
    return b"%08x" % zlib.crc32(repr(told).encode())


def name_inside(path: Path) -> str | None:
    """The table's name as infoflow wrote it into the file; "" in another's file, None in what a damage left of one."""
    try:
        notes = pq.read_metadata(path).metadata or {}
    except (pa.ArrowException, OSError):
        return None if _may_be_damaged(path) else ""
    if _SCHEMA_KEY not in notes:
        return ""
    try:
        name = str(json.loads(notes[_SCHEMA_KEY])["name"])
    except (ValueError, KeyError, TypeError):
        return None
    return name if _is_whole(notes) else None


def _is_whole(notes: Mapping[bytes, bytes]) -> bool:
    """Whether what a file says of itself is what was written; earlier versions kept no sum of it."""
    return notes.get(_CHECKSUM_KEY, _checksum(notes)) == _checksum(notes)


def _is_replaceable(path: Path) -> bool:
    """Whether a table may be written there: nothing lies there, or infoflow's own, or what a damage left of it.

    A folder is refused where it would be written over.
    """
    if not path.exists() or path.is_dir():
        return True
    return name_inside(path) != ""


def _may_be_damaged(path: Path) -> bool:
    """Whether a file that is no Parquet may have been one: it begins like one, or holds nothing."""
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    return start == _MAGIC or not start.strip(b"\0")


def read_table(path: Path | str) -> StoredTable:
    """Read a table with its schema and provenance.

    Raises:
        UserError: The file is absent, damaged, no Parquet file, not written by infoflow, or by a newer one.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"There is no table {path}. Run the analysis first, or check the run folder's name.")
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        _ = table.column_names  # raises where a name is not UTF-8
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UserError(
            f"{path} is not a readable Parquet table: {reason}. Delete it and run again what wrote it."
        ) from None
    notes = table.schema.metadata or {}
    if _SCHEMA_KEY not in notes:
        raise UserError(f"{path} was not written by infoflow: it carries no description of its columns.")
    if not _is_whole(notes):
        raise UserError(
            f"{path} is damaged: its description of itself is not the one that was written. "
            "Delete it and run again what wrote it."
        )
    try:
        schema = TableSchema.from_json(json.loads(notes[_SCHEMA_KEY]))
        origin = json.loads(notes[_PROVENANCE_KEY])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{path} describes itself in a way this infoflow does not understand. "
            "Delete it and run the command again, or upgrade: pip install --upgrade infoflow"
        ) from None
    check_columns(path, table, schema)
    return StoredTable(table.to_pandas(), schema, origin if isinstance(origin, dict) else {})
