"""Reads sentences from memory: lists, and frames of pandas or polars."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from infoflow.foundation import UserError, as_written

from ._columns import Row
from ._tables import beside_text, check_columns, readers
from ._values import look_up, pair, sentence


def read_sentences(
    sentences: Sequence[Any], parallel: bool, where: str, documents: Sequence[Any] | np.ndarray | None = None
) -> Iterator[Row | None]:
    """Rows of a list of sentences, or of pairs if it is `parallel`; None for a blank or missing sentence.

    Raises:
        UserError: An entry differs in kind from the first, or the number of documents differs.
    """
    rows = _read_list(sentences, parallel, where)
    if documents is None:
        yield from rows
        return
    if len(documents) != len(sentences):
        raise UserError(
            f"{where}: documents must have one name per sentence. Got {len(documents)} for {len(sentences)} sentences."
        )
    for row, document in zip(rows, documents, strict=True):
        yield row and {**row, "document": document}


def _read_list(sentences: Sequence[Any], parallel: bool, where: str) -> Iterator[Row | None]:
    for number, entry in enumerate(sentences, start=1):
        if is_pair(entry) != parallel:
            raise UserError(
                f"{where}: all entries must be sentences, or all pairs of a sentence and its translation. Entry "
                f"{number} is {as_written(entry)}, and entry 1 {as_written(sentences[0])}."
            )
        if not parallel:
            text = sentence(entry, where, number)
            yield {"text": text} if text else None
        elif len(entry) != 2:
            raise UserError(f"{where}: a pair has two entries. Entry {number} has {len(entry)}.")
        else:
            yield pair(*(sentence(side, where, number) for side in entry))


def is_pair(entry: Any) -> bool:
    """Whether an entry of a list is a pair of a sentence and its translation."""
    return isinstance(entry, list | tuple)


def is_frame(value: Any) -> bool:
    """Whether it is a frame of pandas, or of polars, which need not be installed."""
    return type(value).__module__.partition(".")[0] in ("pandas", "polars") and type(value).__name__ == "DataFrame"


def read_frame(
    frame: Any, text: str | None, translation: str | None, document: str | None = None, **beside: str
) -> Iterator[Row | None]:
    """Rows of a frame's columns; None if a sentence is missing or blank.

    Raises:
        UserError: The columns are unnamed or missing, or hold something other than text.
    """
    where = f"the {type(frame).__module__.partition('.')[0]} frame"
    check_columns(where, list(frame.columns), text, translation, document, *beside.values())
    rows = _read_cells(frame, where, str(text), translation, readers(beside))
    if beside:
        rows = _beside(rows, {name: _cells(frame, column) for name, column in beside.items()}, where)
    if document is None:
        yield from rows
        return
    for row, name in zip(rows, frame[document], strict=True):
        yield row and {**row, "document": name}


def frame_holds(frame: Any, column: str) -> bool:
    """Whether the first row of a frame has a value in a column, or under a nested key."""
    there = column in frame.columns or column.split(".")[0] in frame.columns
    return there and next(iter(_cells(frame, column)), None) is not None


def _cells(frame: Any, column: str) -> Any:
    """The cells of a column, or their values under a nested key."""
    if column in frame.columns:
        return frame[column]
    parent = column.split(".")[0]
    return [look_up({parent: cell}, column) for cell in frame[parent]]


def _beside(rows: Iterator[Row | None], columns: dict[str, Any], where: str) -> Iterator[Row | None]:
    for number, (row, *values) in enumerate(zip(rows, *columns.values(), strict=True), start=1):
        yield row and beside_text(row, dict(zip(columns, values, strict=True)), where, number)


def _read_cells(
    frame: Any, where: str, text: str, translation: str | None, read: Mapping[str, Callable[..., str | None]]
) -> Iterator[Row | None]:
    if translation is None:
        for number, value in enumerate(_cells(frame, text), start=1):
            found = read["text"](value, where, number, text)
            yield {"text": found} if found else None
        return
    pairs = zip(_cells(frame, text), _cells(frame, translation), strict=True)
    for number, (left, right) in enumerate(pairs, start=1):
        yield pair(read["text"](left, where, number, text), read["translation"](right, where, number, translation))
