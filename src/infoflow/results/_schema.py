"""Tables that say what they hold."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import pandas as pd

DType = Literal["string", "int64", "float64", "bool", "list<float64>"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One documented column."""

    name: str
    dtype: DType
    unit: str  # "" where the column is a key or a name
    description: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSchema:
    """A typed, versioned, documented table; tidy, so each row is one number with what it belongs to."""

    name: str
    version: int
    description: str
    columns: tuple[Column, ...]

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
        return frame[self.column_names].astype(dtypes).reset_index(drop=True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "TableSchema":
        return cls(**{**value, "columns": tuple(Column(**column) for column in value["columns"])})

    def with_keys(self, *keys: Column) -> "TableSchema":
        """The same table with further key columns in front (a study adds model, objective and seed)."""
        return TableSchema(
            name=self.name, version=self.version, description=self.description, columns=(*keys, *self.columns)
        )


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
    """The columns that every number comes with: value, 95% interval, control, sample size, bootstrap replicates."""
    return (
        Column(name="value", dtype="float64", unit=unit, description=value),
        Column(
            name="low",
            dtype="float64",
            unit=unit,
            description="lower end of the 95% interval: what as many other sentences would give, see `block_interval`",
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
