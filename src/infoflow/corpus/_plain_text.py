"""Reads one sentence per line, alone or aligned with its translation."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from infoflow.foundation import UserError

from ._columns import Row
from ._lines import read_lines


def read_text(path: Path) -> Iterator[Row | None]:
    """Sentences of a text file; None for a blank line."""
    for _, line in read_lines(path):
        text = line.strip()
        yield {"text": text} if text else None


def read_documents(path: Path) -> Iterator[Row | None]:
    """Lines of a text file, with the number of the document that each is of; blank lines lie between documents."""
    document, begins = -1, True
    for _, line in read_lines(path):
        if text := line.strip():
            document += begins
            yield {"text": text, "document": document}
        begins = not text


def read_pair(source: Path, target: Path) -> Iterator[Row | None]:
    """Sentence pairs of two files aligned by line; None where either side is blank.

    Raises:
        UserError: One file has more lines than the other.
    """
    lines = zip_longest(read_lines(source), read_lines(target))
    for left, right in lines:
        if left is None or right is None:
            rest = 1 + sum(1 for _ in lines)
            raise _uneven(source, target, left, right, rest)
        yield _pair(left[1], right[1])


def read_table(path: Path, columns: tuple[int, int]) -> Iterator[Row | None]:
    """Sentence pairs from two tab-separated columns (counted from 0) of one file.

    Raises:
        UserError: A line has too few columns.
    """
    for number, line in read_lines(path):
        cells = _cells(path, number, line, columns)
        yield _pair(cells[columns[0]], cells[columns[1]]) if cells else None


def read_labelled(path: Path, columns: Sequence[int]) -> Iterator[Row | None]:
    """Sentences, or pairs of them, with the label of each, from tab-separated columns (counted from 0) of one file.

    Raises:
        UserError: A line has too few columns.
    """
    for number, line in read_lines(path):
        cells = _cells(path, number, line, columns)
        label, *texts = (cells[column].strip() for column in columns) if cells else ("", "")
        row = dict(zip(("text", "second"), texts, strict=False))
        yield {**row, "label": label or None} if all(texts) else None


def read_minimal_pairs(path: Path, columns: tuple[int, ...]) -> Iterator[Row | None]:
    """Good and bad sentences, and where a third column is named the phenomenon of each pair.

    Raises:
        UserError: A line has too few columns.
    """
    for number, line in read_lines(path):
        cells = _cells(path, number, line, columns)
        good, bad, *phenomenon = (cells[column].strip() for column in columns) if cells else ("", "")
        label = {"label": phenomenon[0] or None} if phenomenon else {}
        yield {"text": good, "bad": bad, **label} if good and bad else None


def _cells(path: Path, number: int, line: str, columns: Sequence[int]) -> list[str]:
    """The cells of a line, none of a blank one."""
    if not line.strip():
        return []
    cells = line.split("\t")
    least = max(column + 1 if column >= 0 else -column for column in columns)
    if len(cells) < least:
        raise UserError(
            f"{path}, line {number}: {least} tab-separated columns are needed, {len(cells)} found.\n"
            "Correct the line, or choose other columns."
        )
    return cells


def _pair(text: str, translation: str) -> Row | None:
    text, translation = text.strip(), translation.strip()
    return {"text": text, "translation": translation} if text and translation else None


def _uneven(
    source: Path, target: Path, left: tuple[int, str] | None, right: tuple[int, str] | None, rest: int
) -> UserError:
    longer, shorter = (source, target) if right is None else (target, source)
    present = left or right
    assert present is not None
    common = present[0] - 1
    return UserError(
        f"The files of a parallel corpus must have equally many lines: {longer} has {common + rest}, "
        f"{shorter} only {common}.\nAlign the files line by line, then try again."
    )
