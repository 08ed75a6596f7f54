"""Reads one labelled part of a task from a file with a recognisable layout or named columns."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from infoflow.corpus import Corpus, load_corpus, printable, read_lines, table_columns
from infoflow.foundation import UserError, as_written, running_words

from ._task import Shape, number

COLUMNS = (
    *("text", "second", "label", "question", "choices"),
    *("answers", "answer_starts", "translation", "references", "words"),
)
"""Columns that can be named for a part; they are the columns of a corpus."""
_GOLD, _NO_CONSENSUS = "gold_label", "-"
"""The gold-label column of SNLI and MNLI, and its value if annotators did not agree."""
_USUAL: Mapping[str, tuple[str, ...]] = {
    "text": (
        *("text", "sentence", "sentence1", "premise", "first", "question1", "sentence_A", "passage", "context"),
        *("dialogue", "document", "content", "review"),
    ),
    "second": ("second", "sentence2", "hypothesis", "question2", "sentence_B"),
    "label": ("label", "labels", _GOLD, "class", "category", "score", "answer", "stars"),
    "question": ("question",),
    "choices": ("choices", "options", "endings"),
}
"""Usual column names of tables; the first that exists is used."""
_STARTS = ("answer_starts", "answer_start")
_USUAL_OF: Mapping[Shape, Mapping[str, tuple[str, ...]]] = {
    "span": {
        "text": ("context", "passage", "text", "paragraph", "document"),
        "question": ("question",),
        "answers": ("answers", "answer"),
        "answer_starts": _STARTS,
    },
    "generation": {
        "text": ("source", "text", "body", "document", "article", "dialogue", "triples", "facts"),
        "translation": ("target", "translation", "summary", "subject", "title", "texts", "highlights"),
        "references": ("references",),
    },
}
"""Usual column names for shapes without labels."""
LABELLED: tuple[Shape, ...] = ("classification", "regression")  # shapes that label a text or a pair of texts
_SNIFFED = 2000  # lines
_NAME_WORDS = 3  # maximum number of words in a column's name
_LONGEST_NAME = 255  # maximum bytes of a file name; no corpus has a longer name
_BETWEEN_TABS = (".tsv", ".txt", "")  # endings of files whose columns may have no names
BY_NUMBER = (
    "by number, from 1: label=1, text=2, for pairs second=3 (in the command --label-column 1 --text-column 2 "
    '--second-column 3, in a plan columns = ["label=1", "text=2", "second=3"])'
)
"""How to specify columns, for messages."""


def read_part(source: Any, shape: Shape | None, named: Mapping[str, Any], tags: str | None) -> Corpus:
    """A part of a task, from a corpus (unchanged), a file, a frame, a data set, or `hf:NAME`; `named` maps the names of
    a corpus's columns to those of the source.
    """
    if isinstance(source, Corpus):
        return source
    if "words" in named:
        return _of_words(source, named, tags)
    if isinstance(source, str | Path) and not str(source).startswith("hf:"):
        path = Path(source)
        _check_there(path)
        suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
        if suffix in _BETWEEN_TABS and path.is_file():
            named = numbered(path, named)
        if any(isinstance(column, int) for column in named.values()):
            _check_no_names(path)
            return read_by_number(path, named)
        if suffix in (".tagged", ".tags"):
            return Corpus.from_tagged(path, (tags or "tag",))
        if suffix in _BETWEEN_TABS and not named and path.is_file():
            return _by_layout(path, shape, tags)
        if suffix in (".conllu", ".conll"):
            return load_corpus(path)
        found = table_columns(path) if path.is_file() else []
        if "paragraphs" in found and suffix == ".json" and not named:
            return Corpus.from_squad(path)
        named = _all_named(found, named, shape)
        if found and "text" not in named:
            raise _unnamed(path, "the texts", found)
    elif hasattr(source, "columns") or hasattr(source, "column_names"):
        found = getattr(source, "column_names", None) or list(source.columns)
        named = _all_named(found, named, shape)
    return _loaded(source, named)


def _loaded(source: Any, named: Mapping[str, Any]) -> Corpus:
    corpus = load_corpus(source, **{f"{name}_column": column for name, column in named.items()})
    if named.get("label") != _GOLD:
        return corpus
    labels = list(corpus.column("label"))
    if _NO_CONSENSUS not in labels:
        return corpus
    return corpus.with_column("label", [None if label == _NO_CONSENSUS else label for label in labels])


def _check_there(path: Path) -> None:
    """Raise a UserError for a folder, and for a name that looks like a file but does not exist (it may be a corpus)."""
    try:
        is_folder, is_lost = path.is_dir(), not path.exists()
    except OSError:  # name too long, or folder not searchable
        is_folder, is_lost = False, True
    if is_folder:
        raise UserError(
            f"A part of a task must be a file with labelled examples. {path.resolve()} is a folder.\nName a file in it."
        )
    if is_lost and "," not in path.name and (path.suffix or len(path.parts) > 1 or len(path.name) > _LONGEST_NAME):
        raise UserError(
            f"No file {printable(str(path))[:200]} (current folder: {Path.cwd()}).\n"
            "Name a file with labelled examples, or hf:NAME:SPLIT."
        )


def _of_words(source: Any, named: Mapping[str, Any], tags: str | None) -> Corpus:
    is_set = hasattr(source, "column_names") or (isinstance(source, str) and source.startswith("hf:"))
    if not is_set or tags is None or len(named) > 1:
        given = ", ".join(f"{name}={column}" for name, column in {**named, "tags": tags}.items() if column is not None)
        raise UserError(
            "words and tags name the columns of words and their tags in a data set or hf:NAME; no other columns can be "
            f"named. Got {given}.\nFor a file leave words out: lines of word<TAB>tag and CoNLL-U have no names."
        )
    return load_corpus(source, text=None, words=named["words"], tags=(tags,))


def _by_layout(path: Path, shape: Shape | None, tags: str | None) -> Corpus:
    """Reads a tab-separated file without column names, by the layout of its first lines."""
    lines = _first_lines(path)
    rows = _cells(lines)
    if not rows:
        raise UserError(f"{path} is empty.\nUse a file with labelled text.")
    header = _all_named(rows[0], {}, shape)
    if "text" in header and header.keys() & {"label", "translation", "answers"}:
        return _loaded(path, header)
    if shape in (None, "tagging") and is_tagged(lines):
        return Corpus.from_tagged(path, (tags or "tag",))
    if _names_columns(rows):
        raise _unnamed(path, "the labels" if "text" in header else "the texts", rows[0])
    width = Counter(map(len, rows)).most_common(1)[0][0]
    _check_width(path, width)
    full = sum(all(cell.strip() for cell in cells[:width]) for cells in rows) > len(rows) // 2
    if width in (2, 3) and full:
        return Corpus.from_labelled(path, (1, 2) if width == 2 else (1, 2, 3))
    if width == 4 and full and _second_are_numbers(rows):  # SICK: a class and a number
        return Corpus.from_labelled(path, (2 if shape == "regression" else 1, 3, 4))
    raise UserError(
        f"{path} has an unknown layout: {width} tab-separated columns"
        f"{'' if full else ', most lines with a blank one'}. Known are label and text; label, first and second text; "
        "class, number, first and second text; one word and its tag per line, with blank lines between "
        f"sentences.\nName the columns {BY_NUMBER}."
    )


def _first_lines(path: Path) -> list[str]:
    return [line for _, line in islice(read_lines(path), _SNIFFED)]


def _cells(lines: Sequence[str]) -> list[list[str]]:
    return [line.split("\t") for line in lines if line.strip()]


def _second_are_numbers(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the second cells are numbers; lines where they are not are reported later, when they are read."""
    return all(number(cells[1]) is not None for cells in rows if len(cells) > 1)


def _names_columns(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first line names columns.

    It has a usual column name, at most a few words per cell, and that name does not occur below it, as a class would.
    """
    known = {name.lower() for usual in (_USUAL, *_USUAL_OF.values()) for names in usual.values() for name in names}
    cells = [cell.strip().lower() for cell in rows[0]]
    if len(rows) == 1 or any(len(running_words(cell)) > _NAME_WORDS for cell in cells):
        return False
    usual = [(index, cell) for index, cell in enumerate(cells) if cell in known]
    return any(all(cell != row[place].strip().lower() for row in rows[1:] if place < len(row)) for place, cell in usual)


def _check_no_names(path: Path) -> None:
    """Raise a UserError if columns are given by number but the first line has column names."""
    rows = _cells(_first_lines(path))
    if rows and _names_columns(rows):
        raise UserError(
            f"Column numbers only apply to files without column names. The first line of {path} has names: "
            f"{', '.join(map(printable, rows[0]))}.\nUse these names, or remove the line."
        )


def _unnamed(path: Path, what: str, columns: Sequence[str]) -> UserError:
    names = ", ".join(map(printable, columns))
    return UserError(
        f"{path} is a table, and its column names do not show which one has {what}: {names}.\n"
        "Name it, and the column of labels or target texts: text= and label= (in the command "
        '--text-column and --label-column, in a plan columns = ["text=NAME", "label=NAME"]).'
    )


def _check_width(path: Path, width: int) -> None:
    """Raise a UserError if a line has more columns than most, since its text may contain a tab and would be cut."""
    for place, line in read_lines(path):
        cells = line.split("\t")
        if any(cell.strip() for cell in cells[width:]):
            raise UserError(
                f"{path}, line {place}: {width} tab-separated columns are needed, as in most lines. "
                f"Got {len(cells)}.\nCorrect the line, or name the columns {BY_NUMBER}."
            )


def is_tagged(lines: Sequence[str]) -> bool:
    """Whether lines are `word<TAB>tag` with blank lines between sentences."""
    rows = _cells(lines)
    blank = any(not line.strip() for line in lines)
    return blank and all(len(cells) == 2 and not any(" " in cell for cell in cells[1:]) for cells in rows)


def _all_named(columns: Sequence[str], named: Mapping[str, Any], shape: Shape | None) -> dict[str, Any]:
    """The named columns, and others found by their usual names; a `translation` is also read as `references`."""
    usual = _USUAL if shape is None else _USUAL_OF.get(shape, _USUAL)
    if "answers" in named:
        usual = {**usual, "answer_starts": _STARTS}
    free = [column for column in columns if column not in named.values()]
    found = {
        name: next(column for column in names if column in free)
        for name, names in usual.items()
        if name not in named and not set(names).isdisjoint(free)
    }
    if shape in (None, *LABELLED) and {"choices", "answers"}.isdisjoint({**found, **named}):
        found = _of_labelled(found, named)
    named = {**found, **named}
    if "translation" in named:
        named.setdefault("references", named["translation"])
    return named


def _of_labelled(found: dict[str, str], named: Mapping[str, Any]) -> dict[str, str]:
    """Columns for a labelled shape: a question may be the only text, but is left out if there are two other texts."""
    if "question" in found and {"text", "second"} <= {**found, **named}.keys():
        return {name: column for name, column in found.items() if name != "question"}
    if "question" in found and "text" not in {**found, **named}:
        return {("text" if name == "question" else name): column for name, column in found.items()}
    return found


def check_named(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The named columns; raises a UserError for a column that no task has."""
    for name, column in columns.items():
        if name not in COLUMNS:
            raise UserError(f"A task has no column {name}. It can have: {', '.join(COLUMNS)}.")
        if column is not None and not isinstance(column, str | int):
            raise UserError(f"{name} must be the name or the number of a column. Got {as_written(column)}.")
    return {name: column for name, column in columns.items() if column is not None}


def numbered(path: Path, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """The named columns; digits are column numbers, unless the first line has columns with all of these names."""
    digits = {name: column for name, column in named.items() if re.fullmatch(r"[0-9]{1,9}", str(column))}
    first = next((line for _, line in read_lines(path) if line.strip()), "") if digits else ""
    header = [cell.strip() for cell in first.split("\t")]
    if all(_is_name(str(column), header) for column in digits.values()):
        return named
    return {**named, **{name: int(column) for name, column in digits.items()}}


def _is_name(digits: str, header: Sequence[str]) -> bool:
    """Whether a cell of digits in the first line is a column name: it is if the number is its position, counted from 0
    (as pandas numbers columns), or no position at all (years); otherwise it is the cell of an example.
    """
    return digits in header and header[int(digits) :][:1] in ([], [digits])


def read_by_number(path: Path, named: Mapping[str, Any]) -> Corpus:
    """The label and the text of each line, and the second text of a pair."""
    places = [named.get(name) for name in ("label", "text", "second")]
    used = [place for place in places if place is not None]
    if None in places[:2] or len(used) != len(named) or not all(isinstance(place, int) for place in used):
        given = ", ".join(f"{name}={column}" for name, column in named.items())
        raise UserError(
            "Only the columns of label, text and second text can be given by number. "
            f"Got {given}.\nGive them {BY_NUMBER}; a table with a header has names."
        )
    columns: Any = tuple(used)
    return Corpus.from_labelled(path, columns)
