"""Plain text: one sentence per line, or paragraphs that are split into sentences."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Literal, get_args

from infoflow.foundation import UserError, as_written

from ._columns import Row, pair
from ._lines import read_cells, read_lines

# Splits paragraphs into sentences by a small rule, so that a corpus does not depend on installed packages.
#
# A sentence ends at white space after `.`, `!`, `?`, `…` or another script's mark such as `।` or `؟` (and closing
# quotes or brackets) if the next word does not begin with a lower-case letter. A full stop does not end a sentence
# after an initial (`J. Austen`), an abbreviation with stops inside (`e.g.`, `U.S.`) or one of a list (`Mr.`), nor
# before a number if the list says so (`No. 5`). In scripts without spaces `。`, `！`, `？` or `။` ends a sentence
# wherever it occurs. The splitter of the Europarl tools works like this, with longer lists; our list is English.


Lines = Literal["sentences", "paragraphs"]
"""Content of the lines of a file, or the cells of a column: paragraphs are split into sentences."""

_SPACED, _UNSPACED = ".!?।॥؟۔።፧։", "。！？｡။។"
STOPS = frozenset(_SPACED + _UNSPACED)
"""Signs that end a sentence, either before white space or anywhere."""

_VERSION = 2  # increase when a paragraph is split differently

_OPENING, _CLOSING = "\"'“‘«„(\\[¿¡—–", "\"'”’»“)\\]"
_END = re.compile(
    rf"(?P<stop>[{_SPACED}…]+)[{_CLOSING}]*\s+(?=[{_OPENING}]*\s?(?P<next>[^\W_]))|(?P<wide>[{_UNSPACED}]+)[”’」』）]*\s*(?=\S)"
)
_SHORT = {
    *("mr", "mrs", "ms", "messrs", "mme", "mlle", "dr", "prof", "st", "rev", "hon", "capt", "col", "gen", "lt", "sgt"),
    *("maj", "sen", "rep", "gov", "pres", "jr", "sr", "vs", "cf", "viz", "approx", "ca", "dept", "univ", "inc", "ltd"),
    *("co", "mt", "ft", "eds"),
}
_BEFORE_NUMBERS = {
    *("no", "nos", "art", "p", "pp", "vol", "vols", "fig", "figs", "sec", "secs", "ch", "eq", "eqs", "al", "ed", "tab"),
    *("para", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"),
}
_LONGEST_SHORT = 24  # maximum characters to look back


def sentences_of(paragraph: str) -> list[str]:
    """The sentences of a paragraph, without white space around them.

    >>> sentences_of("Mr. J. Bond paid 3.50, i.e. nothing. “Why?” asked M. He knew.")
    ['Mr. J. Bond paid 3.50, i.e. nothing.', '“Why?” asked M. He knew.']
    """
    cuts = [0, *(found.end() for found in _END.finditer(paragraph) if _ends(paragraph, found)), len(paragraph)]
    pieces = (paragraph[start:stop].strip() for start, stop in pairwise(cuts))
    return [piece for piece in pieces if piece]


def cut_facts(lines: str) -> dict[str, Any]:
    """Entries that the cache key of a corpus gets if its lines are split; empty otherwise."""
    return {"paragraphs": _VERSION} if lines == "paragraphs" else {}


def cut_lines(rows: Iterator[Row | None], lines: str) -> Iterator[Row | None]:
    """The rows; a row of paragraphs becomes one row per sentence, with its other values repeated."""
    if lines not in get_args(Lines):
        raise UserError(f"lines must be among {', '.join(get_args(Lines))}. Got {as_written(lines)}.")
    return _cut(rows) if lines == "paragraphs" else rows


def _cut(rows: Iterable[Row | None]) -> Iterator[Row | None]:
    for row in rows:
        if row is None:
            yield None
            continue
        if other := set(row) - {"text", "document"}:
            raise UserError(
                f"Only plain text can be split into sentences. These lines also have a {min(other)}.\n"
                'Leave out lines = "paragraphs", or the other column.'
            )
        yield from ({**row, "text": sentence} for sentence in sentences_of(row["text"]))


def _ends(paragraph: str, found: re.Match[str]) -> bool:
    if found["wide"]:
        return True
    if found["next"].islower():
        return False
    if found["stop"] != ".":
        return True
    before = paragraph[max(0, found.start() - _LONGEST_SHORT) : found.start()].split()
    apart = found.start() > 0 and paragraph[found.start() - 1].isspace()
    word = before[-1].lstrip(_OPENING.replace("\\", "") + ")") if before and not apart else ""
    if len(word) == 1 and word.isupper() and word != "I":
        return False
    if word.lower() in _SHORT or ("." in word.strip(".") and not word[-1].isdigit() and len(word) < 10):
        return False
    return not (word.lower() in _BEFORE_NUMBERS and found["next"].isdigit())


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
    """Sentence pairs of two files aligned by line; None if either side is blank."""
    lines = zip_longest(read_lines(source), read_lines(target))
    for left, right in lines:
        if left is None or right is None:
            longer, shorter = (source, target) if right is None else (target, source)
            number, _ = left or right or (0, "")
            raise UserError(
                f"The files of a parallel corpus must have the same number of lines: {longer} has "
                f"{number + sum(1 for _ in lines)}, {shorter} only {number - 1}.\nAlign the files line by line, then "
                "try again."
            )
        yield pair(left[1].strip(), right[1].strip())


def read_table(path: Path, columns: tuple[int, int]) -> Iterator[Row | None]:
    """Sentence pairs from two tab-separated columns (from 1; negative ones from the last) of one file."""
    return (pair(*cells) if cells else None for cells in _columns(path, columns))


def read_labelled(path: Path, columns: Sequence[int]) -> Iterator[Row | None]:
    """Labelled sentences or pairs, from tab-separated columns of one file, as in `read_table`."""
    for cells in _columns(path, columns):
        label, *texts = cells or ("", "")
        row = dict(zip(("text", "second"), texts, strict=False))
        yield {**row, "label": label or None} if all(texts) else None


def read_minimal_pairs(path: Path, columns: tuple[int, ...]) -> Iterator[Row | None]:
    """Good and bad sentences, and optionally the phenomenon of each pair from a third column."""
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
    least = max(map(abs, columns))
    for number, cells in read_cells(path):
        if 0 < len(cells) < least:
            raise UserError(
                f"{path}, line {number}: {least} tab-separated columns are needed. Got {len(cells)}.\n"
                "Correct the line, or choose other columns."
            )
        yield [cells[column - (column > 0)].strip() for column in columns] if cells else []
