"""Checks that the first lines of a file look like sentences, not tables, markup or documents of other programs."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path

from infoflow.foundation import UserError, writes_no_spaces

from ._columns import Row
from ._formats import LINE_PATTERNS, TAKE_IT_OUT, kind_by_name
from ._lines import CHUNK_TAG, ENDS, NUMBER, cells_of, column_kind, is_header, odd_column, printable, read_lines

AS_IS = "as-is:"
"""Prefix of a path whose file should not be inspected."""

_ROWS = 100
_SHOWN = 90  # maximum characters of a row in a message
_WORDS = 20  # minimum number of one-word lines in a word list
_MEMBER = re.compile(r'^\s*(?:"(?:[^"\\]|\\.)*"\s*(?::|,?\s*$)|[\[\]{}],?\s*$|\{\s*".*\},?\s*$)')
_QUOTED = re.compile(r'^\s*"(?:[^"\\]|\\.|"")*"\s*$')
_NUMBERED = re.compile(r"^\s*[(\[]?(\d{1,9})(?:[.):\]]|\.\))?\s")
_NAMED_LINE = re.compile(r"^\S*\d\S*[-_]\S*\d\S*\s")
_TAGGED_WORD = re.compile(r"\S+[/_|][A-Z$.,:'`#-]+")

Found = tuple[str, str]
"""What the lines are instead of sentences, and advice."""


def as_it_is(source: str | Path) -> tuple[Path, bool]:
    """The path without the prefix `as-is:`, and whether it had that prefix, so that inspection is skipped."""
    name = str(source)
    return Path(name.removeprefix(AS_IS)), name.startswith(AS_IS)


def check_sentences(path: Path, name: str) -> None:
    """Raise a UserError unless a text file could have one sentence per line."""
    lines = _first_lines(path)
    by_name = kind_by_name(Path(path.name.removesuffix(".gz")).suffix[1:])
    by_lines = next((found for looks in _KINDS if lines and (found := looks(lines))), None)
    found = by_lines or (by_name and (f"is {by_name}, by its name", TAKE_IT_OUT))
    if lines and found:
        raise _refused(path, name, *found, lines[:2])


def check_pairs(path: Path, name: str, columns: tuple[int, int] = (1, 2)) -> None:
    """Raise a UserError that shows two rows unless these tab-separated columns may be sentences and translations."""
    lines = _first_lines(path)
    rows = [cells for cells in map(cells_of, lines) if len(cells) > 1]
    if columns == (1, 2):
        chosen = rows
    else:
        chosen = [[cells[column - (column > 0)] for column in columns] for cells in rows if _reaches(cells, columns)]
    what = "has column names in its first line" if rows and is_header(rows) else odd_column(chosen)
    if what:
        named = rows[0] if is_header(rows) else map(str, range(1, len(rows[0]) + 1))
        advice = (
            "It is a table: name the column of its sentences.\n"
            f"Its columns: {', '.join(printable(cell) for cell in named)}. Write --text-column NAME, and "
            "--translation-column NAME for pairs (in Python text_column=, translation_column=; in a plan under "
            "[corpus])."
        )
        raise _refused(path, name, what, advice, lines[:2])


def check_columns(
    path: Path, columns: Sequence[int], texts: Sequence[int], wrong: Sequence[str] = ("numbers", "labels")
) -> None:
    """Raise a UserError that shows two rows if a table has a header, or a column of `texts` that `wrong` describes."""
    lines = _first_lines(path)
    rows = [cells for cells in map(cells_of, lines) if _reaches(cells, columns)]
    if rows and is_header(rows):
        raise _refused(path, None, "has column names in its first line", "Remove this line.", lines[:2])
    for column in texts:
        cells = [row[column - (column > 0)].strip() for row in rows]
        if cells and (kind := column_kind(cells)) in wrong:
            what = f"has {kind} in column {column}"
            raise _refused(path, None, what, "Give the columns in another order, by number.", lines[:2])


def plausible(rows: Iterator[Row | None], path: Path, columns: dict[str, str]) -> Iterator[Row | None]:
    """Yield the rows after checking that their columns, called `columns` in the file, could hold sentences."""
    first = list(islice(rows, _ROWS))
    for column, name in columns.items():
        cells = [row[column] for row in first if row and isinstance(row.get(column), str)]
        if cells and (kind := column_kind(cells)) in ("numbers", "labels"):
            advice = "Name a column of sentences."
            raise _refused(path, str(path), f"has {kind} in the column {printable(name)}", advice, cells[:2])
    return chain(first, rows)


def _reaches(cells: Sequence[str], columns: Sequence[int]) -> bool:
    return 0 not in columns and len(cells) >= max(map(abs, columns))


def _first_lines(path: Path) -> list[str]:
    return list(islice((line for _, line in read_lines(path) if line.strip()), _ROWS))


def _refused(path: Path, name: str | None, what: str, advice: str, lines: Sequence[str]) -> UserError:
    shown = "\n".join(f"  {_shown(line)}" for line in lines)
    return UserError(
        f"{printable(str(path))} does not look like sentences: it {what}. Its first rows:\n{shown}\n{advice}"
        + (f"\nTo read it anyway: {AS_IS}{printable(name)}" if name is not None else "")
    )


def _shown(line: str) -> str:
    text = printable(line.replace("\t", " ⇥ "))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _share(lines: Sequence[str], holds: Callable[[str], object]) -> float:
    return sum(bool(holds(line)) for line in lines) / len(lines)


def _by_pattern(lines: Sequence[str]) -> Found | None:
    for one in LINE_PATTERNS:
        share = _share(lines[:1] if one.share is None else lines, one.pattern.match)
        if share > (one.share or 0.0):
            return one.what, one.advice
    return None


def _json(lines: Sequence[str]) -> Found | None:
    if _share(lines, _is_json) > 0.9:
        return "has JSON on every line", "Rename it to .jsonl and name the column of its sentences: --text-column NAME."
    if lines[0].strip()[:1] in ("{", "[") and _share(lines, _MEMBER.match) > 0.5:
        return "is a JSON document", "Rename it to .json and name the column of its sentences: --text-column NAME."
    return None


def _is_json(line: str) -> bool:
    if line.strip()[:1] not in ("{", "["):
        return False
    try:
        return isinstance(json.loads(line), dict | list)
    except (ValueError, RecursionError):
        return False


def _table(lines: Sequence[str]) -> Found | None:
    """Detect tab-separated columns on most lines, or comma-separated ones with a header, numbers or quotation marks."""
    if len(lines) < 2:
        return None
    tabs, times = Counter(line.count("\t") for line in lines).most_common(1)[0]
    if tabs and times > len(lines) / 2:
        return "has tab-separated columns", "Rename it to .tsv, or to .tagged for one word and its tag per line."
    for delimiter in ",;|":
        try:
            rows = list(csv.reader(lines, delimiter=delimiter, strict=True))
        except csv.Error:
            continue
        # In a sentence, a comma is followed by a space.
        tight = _share(lines, lambda line, sign=delimiter: f"{sign} " not in re.sub('"[^"]*"', "", line)) > 0.8
        if len({len(row) for row in rows}) > 1 or len(rows[0]) < 2 or not tight:
            continue
        numbers = any(all(NUMBER.fullmatch(cell.strip()) for cell in column) for column in zip(*rows[1:], strict=True))
        quoted = any(f'{delimiter}"' in line or line.startswith('"') for line in lines)
        if delimiter == "|" or is_header(rows) or numbers or quoted:
            return (
                "has comma-separated columns" if delimiter == "," else f"has columns separated by {delimiter}",
                "Rename it to .csv and name the column of its sentences: --text-column NAME.",
            )
    return None


def _mixed_ends(lines: Sequence[str]) -> Found | None:
    """Detect carriage returns inside many lines, which suggest that some lines end as on old Macintoshes."""
    if len(lines) > 2 and _share(lines, lambda line: "\r" in line.strip()) > 0.2:
        return (
            "has carriage returns inside its lines, as if it mixed two kinds of line ends",
            "Write one sentence per line: tr '\\r' '\\n' < FILE > NEW.",
        )
    return None


def _in_front(lines: Sequence[str]) -> Found | None:
    """Detect a number or a unique identifier at the start of every line."""
    numbers = [int(found[1]) if (found := _NUMBERED.match(line)) else -1 for line in lines]
    follow = all(second in (first + 1, 0, 1) for first, second in pairwise(numbers))  # numbers may restart
    if len(lines) > 2 and follow and min(numbers) >= 0 and len(set(numbers)) > 1:
        return "starts every line with its number", "Remove the numbers, and keep one sentence per line."
    names = [line.split(maxsplit=1)[0] for line in lines]
    if len(lines) > 2 and all(map(_NAMED_LINE.match, lines)) and len(set(names)) == len(names):
        return "starts every line with a name", "Remove the names, and keep one sentence per line."
    return None


def _tagged(lines: Sequence[str]) -> Found | None:
    fields = [line.split() for line in lines]
    same = len(lines) > 1 and 1 < len(fields[0]) < 8 and len({len(row) for row in fields}) == 1
    if same and all(CHUNK_TAG.fullmatch(row[-1]) for row in fields):
        return "has a word and its tags on every line", "Rename it to .conll."
    words = [word for row in fields if len(row) > 1 for word in row]
    if words and _share(words, _TAGGED_WORD.fullmatch) > 0.8:
        return "has a tag after every word", "Write a word, a tab and its tag on each line, and rename it to .tagged."
    return None


def _numbers(lines: Sequence[str]) -> Found | None:
    if _share(lines, lambda line: not any(char.isalpha() for char in line)) > 0.9:
        return "holds no letters", "Give a file with text in it."
    words = [line.split() for line in lines]
    if sum(2 * sum(map(bool, map(NUMBER.fullmatch, row))) > len(row) for row in words) > 0.8 * len(lines):
        return "holds more numbers than words", "Give a file with text in it."
    return None


def _quoted(lines: Sequence[str]) -> Found | None:
    if len(lines) > 2 and _share(lines, _QUOTED.match) > 0.9:
        return (
            "has quotation marks around every line",
            "Rename it to .csv with a header, or remove the quotation marks.",
        )
    return None


def _word_list(lines: Sequence[str]) -> Found | None:
    words = [line.strip() for line in lines]
    single = [len(word.split()) == 1 and not word.endswith(ENDS) and not writes_no_spaces(word) for word in words]
    if len(words) >= _WORDS and sum(single) > 0.9 * len(words):
        return "is a list of words", "Write one sentence per line, or a word and its tags in a .tagged file."
    return None


_KINDS = (_json, _by_pattern, _mixed_ends, _table, _in_front, _tagged, _numbers, _quoted, _word_list)
