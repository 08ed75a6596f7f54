"""Chart data as named datasets, so that a specification holds each table once."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

_NAME = "infoflow-datasets"


@contextmanager
def datasets() -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Context in which chart specifications refer to tables by name; yields the rows by name.

    Altair itself converts a table once per layer, column by column through pandas. Names, rows and values are the same;
    NaN becomes `None`.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    names: dict[int, tuple[str, pd.DataFrame]] = {}  # keeps the table alive, so that no other one reuses its identity

    def named(frame: Any) -> Any:
        if not isinstance(frame, pd.DataFrame):
            return frame
        if id(frame) not in names:
            rows = records(frame)
            text = json.dumps(rows, sort_keys=True, default=str)
            name = f"data-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
            names[id(frame)] = (name, frame)
            found[name] = rows
        return alt.NamedData(name=names[id(frame)][0])

    alt.data_transformers.register(_NAME, named)
    try:
        with alt.data_transformers.enable(_NAME):
            yield found
    finally:
        alt.data_transformers.register(_NAME, None)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """One mapping per row, with JSON values."""
    names = [str(name) for name in frame.columns]
    columns = [_plain(frame, place) for place in range(len(names))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(frame: pd.DataFrame, place: int) -> list[Any]:
    column = frame.iloc[:, place]
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "bi":
        return column.tolist()
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "f":
        numbers = column.to_numpy()
        values = numbers.tolist()
        for missing in np.flatnonzero(~np.isfinite(numbers)).tolist():
            values[missing] = None
        return values
    if isinstance(column.dtype, pd.StringDtype):
        return column.to_numpy(dtype=object, na_value=None).tolist()
    alone = alt.utils.sanitize_pandas_dataframe(frame.iloc[:, [place]])  # lists, categories and other types
    return alone.to_dict(orient="list")[frame.columns[place]]
