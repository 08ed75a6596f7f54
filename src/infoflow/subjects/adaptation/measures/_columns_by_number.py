"""Columns of a tab-separated file without a header, by number from 1."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infoflow.corpus import Corpus, read_lines
from infoflow.foundation import UserError

BY_NUMBER = (
    "by number, from 1: label=1, text=2, of a pair second=3 (in the command --label-column 1 --text-column 2 "
    '--second-column 3, in a plan columns = ["label=1", "text=2", "second=3"])'
)
"""How to specify columns, for messages."""


def numbered(path: Path, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """The named columns, with digits as numbers unless the first line has all of them as names.

    Commands and plans write both as text.
    """
    digits = {name: column for name, column in named.items() if re.fullmatch(r"[0-9]{1,9}", str(column))}
    first = next((line for _, line in read_lines(path) if line.strip()), "") if digits else ""
    header = [cell.strip() for cell in first.split("\t")]
    if all(_is_name(str(column), header) for column in digits.values()):
        return named
    return {**named, **{name: int(column) for name, column in digits.items()}}


def _is_name(digits: str, header: Sequence[str]) -> bool:
    """Whether a first line names a column in digits.

    True at the position of that number from 0, as pandas numbers columns, or if there is no such position (years);
    elsewhere it is the cell of an example.
    """
    return digits in header and header[int(digits) :][:1] in ([], [digits])


def read_by_number(path: Path, named: Mapping[str, Any]) -> Corpus:
    """The label and the text of each line, and the second text of a pair.

    Raises:
        UserError: Other columns are named, or not all are given by number.
    """
    places = [named.get(name) for name in ("label", "text", "second")]
    used = [place for place in places if place is not None]
    if None in places[:2] or len(used) != len(named) or not all(isinstance(place, int) for place in used):
        given = ", ".join(f"{name}={column}" for name, column in named.items())
        raise UserError(
            "Only the columns of label, text and second text can be given by number. "
            f"Got {given}.\nName them {BY_NUMBER}; a table with a header has names."
        )
    columns: Any = tuple(used)
    return Corpus.from_labelled(path, columns)
