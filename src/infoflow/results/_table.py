"""A table in Python: a data frame with a schema, which hides its bootstrap replicates when shown."""

from typing import Any

import pandas as pd

from infoflow.foundation import shown_by

from ._schema import TableSchema

_HIDDEN = "replicates"  # hundreds of numbers in each row


class Table(pd.DataFrame):
    """A data frame of a measure; selections keep the class and the `schema`."""

    _metadata = ["schema"]  # noqa: RUF012 (pandas' way to carry attributes along)
    schema: TableSchema | None

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: TableSchema | None = None) -> "Table":
        """The frame, without a copy of its numbers."""
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

    _repr_html_ = shown_by("infoflow.report", "table_shown")  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.shown)

    def to_string(self, *arguments: Any, **options: Any) -> Any:
        """As in pandas, with every column."""
        return pd.DataFrame(self).to_string(*arguments, **options)
