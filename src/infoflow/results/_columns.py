"""Checks a table against its own description."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from infoflow.foundation import UserError

from ._schema import DType, TableSchema

_LOWEST = -2  # -1: embeddings, -2: the head of a task
_HIGHEST = 100_000  # a layer, a head: far above any model's
_COUNTED = ("layer", "next_layer", "layer_a", "layer_b", "head", "head_a", "head_b")


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)


def _is_floats(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return pa.types.is_null(kind)  # of a table without rows
    return pa.types.is_floating(kind.value_type) or pa.types.is_null(kind.value_type)


_KINDS: dict[DType, Callable[[pa.DataType], bool]] = {
    "string": _is_text,
    "int64": pa.types.is_integer,
    "float64": pa.types.is_floating,
    "bool": pa.types.is_boolean,
    "list<float64>": _is_floats,
}


def check_columns(path: Path, table: pa.Table, schema: TableSchema) -> None:
    """Refuse a table whose columns differ from its description.

    Raises:
        UserError: A column is missing, of another type, or has rows without a value or with an impossible one.
    """
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
    return UserError(f"{path} is damaged: {reason}. Delete it and run again what wrote it.")
