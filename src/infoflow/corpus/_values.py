"""Conversion of values of a table, list or dataset to sentences."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import UserError, as_written, is_unicode

from ._columns import Row
from ._lines import LONGEST_LINE


def sentence(value: Any, where: str, number: int, column: str = "") -> str | None:
    """The sentence without surrounding white space; None if it is missing or blank.

    `where`, `number` (counted from 1) and `column` are for messages.

    Raises:
        UserError: It is not text, has a zero byte or half a surrogate pair, or is longer than `LONGEST_LINE`.
    """
    if is_missing(value):
        return None
    return plain_text(value, where, number, column).strip()


def plain_text(value: Any, where: str, number: int, column: str = "") -> str:
    """The value unchanged if it is text; else a UserError, as in `sentence`."""
    if not isinstance(value, str):
        wrong = f"holds {as_written(value)}, not text.\nName a column of sentences."
    elif len(value) > LONGEST_LINE:
        wrong = f"has {len(value):,} characters. A sentence may have at most {LONGEST_LINE:,}.\nSplit it."
    elif "\x00" in value:
        wrong = "contains a zero byte, which is not text.\nRemove it."
    elif not is_unicode(value):
        wrong = (
            "contains half of a surrogate pair, which is not Unicode text.\nWrite the whole character, or remove it."
        )
    else:
        return value
    raise UserError(f"{where}, {number}{f', column {column}' if column else ''}: {wrong}")


def label(value: Any, where: str, number: int) -> str | None:
    """A class or regression target: text, or a number or truth value as text; None if missing."""
    if is_missing(value) or isinstance(value, str):
        return sentence(value, where, number, "label") or None
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating) and np.isfinite(value):
        return repr(float(value))
    raise UserError(
        f"{where}, {number}: a label must be text or a number. Got {as_written(value)}.\nName another column."
    )


def texts(value: Any, where: str, number: int, column: str = "") -> list[str]:
    """A list of texts, none of them blank.

    Raises:
        UserError: It is not a list, or an entry is not text or a blank one.
    """
    entries = list(value) if isinstance(value, list | tuple | np.ndarray) else None
    found = [sentence(entry, where, number, column) for entry in entries or ()]
    if entries is None or not all(found):
        got = as_written(value) if entries is None else "a list with a blank text"
        raise UserError(
            f"{where}, {number}{f', column {column}' if column else ''}: expected a list of texts. Got {got}.\n"
            "Correct the row, or name another column."
        )
    return [text for text in found if text]


def passage(value: Any, where: str, number: int, column: str = "") -> str | None:
    """A text, from a text, or a list of dialogue turns, sentences or facts.

    Turns and sentences are joined by blanks; facts, each a list of texts, become `subject | relation | object && ...`.
    """
    if not isinstance(value, list | tuple | np.ndarray):
        return sentence(value, where, number, column)
    if len(value) and all(isinstance(entry, list | tuple | np.ndarray) for entry in value):
        return " && ".join(" | ".join(listed(entry, where, number, column)) for entry in value)
    return " ".join(listed(value, where, number, column))


def first_text(value: Any, where: str, number: int, column: str = "") -> str | None:
    """A text, or the first of a list of texts; None if missing."""
    found = listed(value, where, number, column)
    return found[0] if found else None


def listed(value: Any, where: str, number: int, column: str = "") -> list[str]:
    """The nonblank texts of a list, or a single text as a list; empty if missing."""
    entries = value if isinstance(value, list | tuple | np.ndarray) else [value]
    return [text for entry in entries if (text := sentence(entry, where, number, column))]


def places(value: Any, where: str, number: int, column: str = "") -> list[int]:
    """Start characters in a text: a list of whole numbers, or a single one."""
    entries = list(value) if isinstance(value, list | tuple | np.ndarray) else [] if is_missing(value) else [value]
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, int | np.integer) or not 0 <= entry < 1 << 31:
            raise UserError(
                f"{where}, {number}{f', column {column}' if column else ''}: expected character offsets from 0. Got "
                f"{as_written(entry)}.\nCorrect the row, or name another column."
            )
    return [int(entry) for entry in entries]


def pair(text: str | None, translation: str | None) -> Row | None:
    """A row of a parallel corpus; None if either side is missing or blank."""
    return {"text": text, "translation": translation} if text and translation else None


def look_up(record: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or of a nested key: `translation.en`; None if missing."""
    if column in record:
        return record[column]
    value: Any = record
    for key in column.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def is_missing(value: Any) -> bool:
    """Whether the value is missing: None, NaN, or pandas' equivalent."""
    return value is None or (not isinstance(value, str) and bool(pd.api.types.is_scalar(value) and pd.isna(value)))
