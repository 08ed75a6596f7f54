"""Tables as Parquet files that carry their own documentation and provenance."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from infoflow.foundation import UserError, atomic_write, provenance

from ._schema import TableSchema

_SCHEMA_KEY, _PROVENANCE_KEY = b"infoflow.schema", b"infoflow.provenance"


class StoredTable(NamedTuple):
    frame: pd.DataFrame
    schema: TableSchema
    provenance: dict[str, Any]


def write_table(
    path: Path | str, frame: pd.DataFrame, schema: TableSchema, origin: dict[str, Any] | None = None
) -> Path:
    """Write a table whole or not at all; `origin` (default: this process's provenance) is stored inside."""
    path = Path(path)
    table = pa.Table.from_pandas(schema.conform(frame), preserve_index=False)
    notes = {
        _SCHEMA_KEY: json.dumps(schema.to_json()).encode(),
        _PROVENANCE_KEY: json.dumps(provenance() if origin is None else origin).encode(),
    }
    with atomic_write(path) as temporary:
        pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **notes}), temporary)
    return path


def read_table(path: Path | str) -> StoredTable:
    """Read a table with its schema and provenance.

    Raises:
        UserError: The file is absent, is no Parquet file, or was not written by infoflow, or by a newer one.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"There is no table {path}. Run the analysis first, or check the run folder's name.")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path} is not a readable Parquet table: {str(error).rstrip('.')}. Delete it and run again what wrote it."
        ) from None
    notes = table.schema.metadata or {}
    if _SCHEMA_KEY not in notes:
        raise UserError(f"{path} was not written by infoflow: it carries no description of its columns.")
    try:
        schema = TableSchema.from_json(json.loads(notes[_SCHEMA_KEY]))
        origin = json.loads(notes[_PROVENANCE_KEY])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} describes itself in a way this infoflow does not understand: {error}. "
            "Delete it and run the command again, or upgrade: pip install --upgrade infoflow"
        ) from None
    return StoredTable(table.to_pandas(), schema, origin)
