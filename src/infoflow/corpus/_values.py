"""A value of a table, list or dataset that is to be a sentence."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import UserError, as_written

from ._columns import Row
from ._lines import LONGEST_LINE


def sentence(value: Any, where: str, number: int, column: str = "") -> str | None:
    """The sentence without white space around it; None where there is none.

    `where`, `number` (counted from 1) and `column` are for messages.

    Raises:
        UserError: It is no text, holds a zero byte or half a surrogate pair, or is longer than `LONGEST_LINE`.
    """
    if is_missing(value):
        return None
    return plain_text(value, where, number, column).strip()


def plain_text(value: Any, where: str, number: int, column: str = "") -> str:
    """The value as it is, if it is text; else a UserError, as `sentence`."""
    if not isinstance(value, str):
        wrong = f"holds {as_written(value)}, not text.\nName a column of sentences."
    elif len(value) > LONGEST_LINE:
        wrong = f"has {len(value):,} characters. A sentence may have {LONGEST_LINE:,} at most.\nSplit it up."
    elif "\x00" in value:
        wrong = "holds a zero byte, which is no text.\nRemove it."
    elif not _is_unicode(value):
        wrong = "holds half of a surrogate pair, which is no Unicode text.\nWrite the whole character, or remove it."
    else:
        return value
    raise UserError(f"{where}, {number}{f', column {column}' if column else ''}: {wrong}")


def label(value: Any, where: str, number: int) -> str | None:
    """A class: text, or a whole number or truth value as text; None where there is none."""
    if is_missing(value) or isinstance(value, str):
        return sentence(value, where, number, "label") or None
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(value)
    raise UserError(
        f"{where}, {number}: a label must be text or a whole number. Got {as_written(value)}.\nName another column."
    )


def pair(text: str | None, translation: str | None) -> Row | None:
    """A row of a parallel corpus; None where either side is missing or blank."""
    return {"text": text, "translation": translation} if text and translation else None


def look_up(record: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or of a key inside: `translation.en`; None where there is none."""
    if column in record:
        return record[column]
    value: Any = record
    for key in column.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def is_missing(value: Any) -> bool:
    """Whether there is no value: None, NaN, or what pandas has for it."""
    return value is None or (not isinstance(value, str) and bool(pd.api.types.is_scalar(value) and pd.isna(value)))


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
