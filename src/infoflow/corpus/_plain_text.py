"""Reads one sentence per line, alone or aligned with its translation."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from infoflow.foundation import UserError

from ._columns import Row
from ._lines import read_lines
from ._separated import read_cells


def read_text(path: Path) -> Iterator[Row | None]:
    """Sentences of a text file; None for a blank line."""
    for _, line in read_lines(path):
        text = line.strip()
        yield {"text": text} if text else None


def read_documents(path: Path) -> Iterator[Row | None]:
    """Lines of a text file, each with its document number; blank lines separate documents."""
    document, begins = -1, True
    for _, line in read_lines(path):
        if text := line.strip():
            document += begins
            yield {"text": text, "document": document}
        begins = not text


def read_pair(source: Path, target: Path) -> Iterator[Row | None]:
    """Sentence pairs of two files aligned by line; None if either side is blank.

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
    """Sentence pairs from two tab-separated columns (from 1; negative ones from the last) of one file.

    Raises:
        UserError: A line has too few columns, or a column is 0.
    """
    return (_pair(*cells) if cells else None for cells in _columns(path, columns))


def read_labelled(path: Path, columns: Sequence[int]) -> Iterator[Row | None]:
    """Labelled sentences or pairs, from tab-separated columns of one file, as in `read_table`.

    Raises:
        UserError: A line has too few columns, or a column is 0.
    """
    for cells in _columns(path, columns):
        label, *texts = cells or ("", "")
        row = dict(zip(("text", "second"), texts, strict=False))
        yield {**row, "label": label or None} if all(texts) else None


def read_minimal_pairs(path: Path, columns: tuple[int, ...]) -> Iterator[Row | None]:
    """Good and bad sentences, and optionally the phenomenon of each pair from a third column.

    Raises:
        UserError: A line has too few columns, or a column is 0.
    """
    for cells in _columns(path, columns):
        good, bad, *phenomenon = cells or ("", "")
        label = {"label": phenomenon[0] or None} if phenomenon else {}
        yield {"text": good, "bad": bad, **label} if good and bad else None


def _columns(path: Path, columns: Sequence[int]) -> Iterator[list[str]]:
    """The cells of each line in these columns, empty for a blank line."""
    if 0 in columns:
        raise UserError(
            f"Columns count from 1, as in cut -f, and -1 is the last. Got {', '.join(map(str, columns))}.\n"
            "If they count from 0, add 1."
        )
    for number, cells in read_cells(path):
        yield [cell.strip() for cell in _checked(path, number, cells, columns)] if cells else []


def _checked(path: Path, number: int, cells: Sequence[str], columns: Sequence[int]) -> list[str]:
    """The cells of these columns."""
    if len(cells) < (least := max(map(abs, columns))):
        raise UserError(
            f"{path}, line {number}: {least} tab-separated columns are needed. Got {len(cells)}.\n"
            "Correct the line, or choose other columns."
        )
    return [cells[column - (column > 0)] for column in columns]


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
        f"The files of a parallel corpus must have the same number of lines: {longer} has {common + rest}, "
        f"{shorter} only {common}.\nAlign the files line by line, then try again."
    )
