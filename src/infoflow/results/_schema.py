"""Self-describing tables, and the registry of those that infoflow writes."""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from types import MappingProxyType
from typing import Any, Literal

import pandas as pd

SUFFIX = "_over_training"
"""Suffix of the names of tables over checkpoints."""
DType = Literal["string", "int64", "float64", "bool", "list<float64>"]


class Column(str):
    """One documented column; it equals its name, so code can read and write the column by this object: `frame[OFFSET]`.

    Renaming a column then takes one edit, which the type checker follows.

    >>> offset = Column("offset", "int64", "tokens", "position of the key less that of the query")
    >>> pd.DataFrame([{offset: -1}])["offset"].tolist()
    [-1]
    """

    __slots__ = ("description", "dtype", "unit")
    dtype: DType
    unit: str  # "" if the column is a key or a name
    description: str

    def __new__(cls, name: str, dtype: DType, unit: str, description: str) -> "Column":
        self = super().__new__(cls, name)
        self.dtype, self.unit, self.description = dtype, unit, description
        return self

    def __getnewargs__(self) -> tuple[str, DType, str, str]:  # type: ignore[override]
        return self.name, self.dtype, self.unit, self.description

    @property
    def name(self) -> str:
        return str(self)

    def named(self, name: str, description: str = "") -> "Column":
        """The same under another name."""
        return Column(name, self.dtype, self.unit, description or self.description)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSchema:
    """A typed, versioned, documented, tidy table: each row is one number with its keys.

    A table is declared once, where it is computed, and `TABLES` finds it by its name; duplicates: the first wins.

    Args:
        light: Cheap enough to be measured at every checkpoint of a training by default.
        over_training: Its rows describe checkpoints of a training; other tables describe finished models and have a
            second table over training.
        made_by: What a run needs to have this table; "" if every study has it.
        declare: Whether `TABLES` registers it; copies and tables read from files are not declared.
    """

    name: str
    version: int
    description: str
    columns: tuple[Column, ...]
    light: bool = False
    over_training: bool = False
    made_by: str = ""
    declare: InitVar[bool] = True

    def __post_init__(self, declare: bool) -> None:
        if declare:
            _DECLARED.setdefault(self.name, self)

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def conform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with exactly these columns, in this order and of these types.

        Raises:
            AssertionError: A column is missing or unknown: the measure and its schema disagree.
        """
        missing = set(self.column_names) - set(frame.columns)
        unknown = set(frame.columns) - set(self.column_names)
        assert not missing, f"table {self.name}: missing columns {sorted(missing)}"
        assert not unknown, f"table {self.name}: undocumented columns {sorted(unknown)}"
        dtypes: dict[str, Any] = {c.name: _PANDAS[c.dtype] for c in self.columns}
        conformed = frame[self.column_names].astype(dtypes).reset_index(drop=True)
        conformed.attrs = {}  # notes of a reader do not belong in a file
        return conformed

    @property
    def at_checkpoints(self) -> str:
        """Name of the table with the same numbers at checkpoints of a training."""
        return f"{self.name}{SUFFIX}"

    @property
    def unit(self) -> str:
        """Unit of the column `value`; "" without one."""
        return next((column.unit for column in self.columns if column.name == "value"), "")

    def to_json(self) -> dict[str, Any]:
        """The description that a file stores."""
        columns = [
            {name: getattr(one, name) for name in ("name", "dtype", "unit", "description")} for one in self.columns
        ]
        return {"name": self.name, "version": self.version, "description": self.description, "columns": columns}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "TableSchema":
        columns = tuple(Column(**column) for column in value["columns"])
        return cls(**{**value, "columns": columns}, declare=False)

    def with_keys(self, *keys: Column) -> "TableSchema":
        """The same table with additional key columns in front (a study adds model, objective and seed)."""
        return self.named(self.name, self.description, (*keys, *self.columns))

    def named(self, name: str, description: str, columns: tuple[Column, ...]) -> "TableSchema":
        """A table derived from this one, of the same version."""
        return TableSchema(name=name, version=self.version, description=description, columns=columns, declare=False)


_DECLARED: dict[str, TableSchema] = {}
TABLES: Mapping[str, TableSchema] = MappingProxyType(_DECLARED)
"""Every table of the imported parts of infoflow, by name."""

_PANDAS: dict[DType, str] = {
    "string": "string",
    "int64": "int64",
    "float64": "float64",
    "bool": "bool",
    "list<float64>": "object",
}


def estimate_columns(
    unit: str, value: str, baseline: str, count: str = "number of observations behind the value"
) -> tuple[Column, ...]:
    """The columns of every number: value, 95% interval, control, sample size, bootstrap replicates."""
    return (
        Column(name="value", dtype="float64", unit=unit, description=value),
        Column(
            name="low",
            dtype="float64",
            unit=unit,
            description="lower end of the 95% interval over the choice of sentences, see `block_interval`",
        ),
        Column(name="high", dtype="float64", unit=unit, description="upper end of the 95% interval"),
        Column(name="baseline", dtype="float64", unit=unit, description=baseline),
        Column(name="count", dtype="int64", unit="occurrences", description=count),
        Column(
            name="replicates",
            dtype="list<float64>",
            unit=unit,
            description="bootstrap replicates of the value; paired between models measured on the same sentences",
        ),
    )
