"""Splits paragraphs into sentences by a small rule, so that a corpus does not depend on installed packages.

A sentence ends at white space after `.`, `!`, `?`, `…` or another script's mark such as `।` or `؟` (and closing quotes
or brackets) where the next word does not begin with a lower-case letter. A full stop ends none after an initial
(`J. Austen`), an abbreviation with stops inside (`e.g.`, `U.S.`) or one of a list (`Mr.`), nor before a number where
the list says so (`No. 5`). In scripts without spaces `。`, `！`, `？` or `။` ends one wherever it stands. So does the
splitter of the Europarl tools, with longer lists; this one is English.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Literal, get_args

from infoflow.foundation import UserError, as_written

from ._columns import Row

Lines = Literal["sentences", "paragraphs"]
"""Content of the lines of a file, or the cells of a column: paragraphs are split into sentences."""

_SPACED, _UNSPACED = ".!?।॥؟۔።፧։", "。！？｡။។"
STOPS = frozenset(_SPACED + _UNSPACED)
"""Signs that end a sentence, before white space or anywhere."""

_VERSION = 2  # raise when a paragraph is cut otherwise

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
    """Key entries of a corpus whose lines were split; empty otherwise."""
    return {"paragraphs": _VERSION} if lines == "paragraphs" else {}


def cut_lines(rows: Iterator[Row | None], lines: str) -> Iterator[Row | None]:
    """The rows; paragraphs give a row for each sentence, with the row's other values.

    Raises:
        UserError: Paragraphs have translations or words, which belong to the unsplit text; or there is no such kind.
    """
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
    word = before[-1].lstrip(_OPENING.replace("\\", "") + ")") if before and not _blank_before(paragraph, found) else ""
    if len(word) == 1 and word.isupper() and word != "I":
        return False
    if word.lower() in _SHORT or ("." in word.strip(".") and not word[-1].isdigit() and len(word) < 10):
        return False
    return not (word.lower() in _BEFORE_NUMBERS and found["next"].isdigit())


def _blank_before(paragraph: str, found: re.Match[str]) -> bool:
    return found.start() > 0 and paragraph[found.start() - 1].isspace()
