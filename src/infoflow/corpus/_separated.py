"""Tab-separated lines: quotation marks, headers, and columns without sentences."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from infoflow.foundation import writes_no_spaces

from ._lines import read_lines

_SNIFFED = 1000  # lines used to detect quoted cells
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_NAMES_LISTED = (
    "id idx index nr no number pairid pair_id sentid sent_id uid text texts sentence sentences sentence1 "
    "sentence2 sentence_1 sentence_2 sent1 sent2 sentence_a sentence_b sentence_good sentence_bad label labels "
    "class category score scores similarity rating source src target tgt translation translations reference "
    "references hypothesis premise gold_label question question1 question2 answer context passage title body "
    "content document doc doc_id lang language file filename date author url genre split part domain topic "
    "summary entailment relatedness sentiment stars review utterance speaker word tag pos"
)
_NAMES = frozenset(_NAMES_LISTED.split())
_LANGUAGES_LISTED = (
    "arabic chinese czech danish dutch english finnish french german greek hebrew hindi hungarian indonesian "
    "italian japanese korean norwegian persian polish portuguese romanian russian spanish swahili swedish thai "
    "turkish ukrainian urdu vietnamese deutsch français francais español espanol italiano português русский 中文 "
    "日本語 en fr de es it pt nl sv da no fi pl cs sk hu ro bg el ru uk tr ar he fa hi ur bn th vi id ms zh ja ko sw "
    "ca eu gl eng fra fre deu ger spa ita por nld swe dan nob fin pol ces slk hun ron bul ell rus ukr tur ara heb "
    "fas hin urd ben tha vie ind zho cmn jpn kor swa cat eus glg lat"
)
_LANGUAGES = frozenset(_LANGUAGES_LISTED.split())
NUMBER = re.compile(r"[-+]?\d[\d.,:/%-]*")
ENDS = tuple(".!?…。！？؟।\"”»')")


def read_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells, empty for a blank line; quotation marks of spreadsheets and pandas are removed."""
    quoted = is_quoted(path)
    for number, line in read_lines(path):
        yield number, cells_of(line, quoted) if line.strip() else []


def is_quoted(path: Path) -> bool:
    """Whether cells are quoted where necessary, with doubled quotes inside.

    Every mark in the first lines must be consistent with it, and one must show it (`""`, or a quoted first line).
    """
    lines = [line for _, line in islice(read_lines(path), _SNIFFED)]
    cells = [cell for line in lines for cell in line.split("\t") if '"' in cell]
    shows = any('""' in cell[1:-1] for cell in cells) or (bool(lines) and _all_quoted(lines[0]))
    return shows and all(map(_QUOTED.fullmatch, cells))


def _all_quoted(line: str) -> bool:
    return "\t" in line and all(map(_QUOTED.fullmatch, line.split("\t")))


def cells_of(line: str, quoted: bool = False) -> list[str]:
    """The cells of a line."""
    cells = line.split("\t")
    if not quoted:
        return cells
    return [cell[1:-1].replace('""', '"') if _QUOTED.fullmatch(cell) else cell for cell in cells]


def is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns.

    Either every cell is a usual name or a language, or cells have at most three words without sentence ends, with a
    usual name among them or numbers below one of them.
    """
    first = [cell.strip().strip('"').lower() for cell in rows[0]]
    known = [cell in _NAMES or cell in _LANGUAGES or re.fullmatch(r"[a-z]{2}[-_][a-z]{2}", cell) for cell in first]
    if not any(first) or any(first == [cell.strip().lower() for cell in row] for row in rows[1:]):
        return False
    if all(known):
        return len(first) > 1 or first[0] in _NAMES
    names = all(cell and len(cell.split()) <= 3 and not cell.endswith(ENDS) for cell in first)
    if not names or any(map(NUMBER.fullmatch, first)):
        return False
    numbers = any(all(NUMBER.fullmatch(cell.strip()) for cell in column) for column in zip(*rows[1:], strict=False))
    return numbers or (any(cell in _NAMES for cell in first) and not _like_the_rest(first, rows[1:]))


def _like_the_rest(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the cells of the first row are about as long as those below: `answer` among single words."""
    below = [cell for row in rows for cell in row]
    return bool(below) and max(map(len, below)) <= 2 * max(map(len, first))


def odd_column(rows: Sequence[Sequence[str]]) -> str | None:
    """The problem with rows whose first two cells should be a sentence and its translation, or None."""
    if not rows:
        return None
    width = min(map(len, rows))
    columns = [[row[place].strip() for row in rows] for place in range(width)]
    kinds = [column_kind(column) for column in columns]
    for place, kind in enumerate(kinds):
        if kind and (place < 2 or (kind in ("numbers", "labels") and width > 2)):
            return f"has {kind} in column {place + 1}"
    words = [sum(map(_length, column)) / len(column) for column in columns[:2]]
    for place in range(2):
        single = all(len(cell.split()) == 1 and not cell.endswith(ENDS) for cell in columns[place])
        # A few different words may be translations.
        single &= len(rows) >= 10 or place == 0 or len(set(columns[place])) < len(rows)
        if single and words[place] == 1 and words[1 - place] >= 3:
            return f"has single words in column {place + 1}, next to longer texts"
    return None


def column_kind(cells: Sequence[str]) -> str | None:
    filled = [cell for cell in cells if cell]
    if len(filled) < len(cells) / 2:
        return "few cells"
    if sum(bool(NUMBER.fullmatch(cell)) for cell in filled) > 0.9 * len(filled):
        return "numbers"
    distinct = set(filled)
    short = all(len(cell.split()) <= 3 and not cell.endswith(ENDS) for cell in filled)
    if short and (distinct <= _LANGUAGES or (len(filled) >= 10 and len(distinct) <= max(1, 0.15 * len(filled)))):
        return "labels"
    return None


def _length(cell: str) -> float:
    """Length in words, or an estimate for a script without spaces."""
    return max(len(cell.split()), len(cell) / 4 if writes_no_spaces(cell) else 1)
