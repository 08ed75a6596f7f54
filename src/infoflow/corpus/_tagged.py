"""Reads a word and its tags a line, as supertaggers and sequence labellers write them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from infoflow.foundation import UserError

from ._categories import split_category
from ._columns import NAMED_COLUMNS, Row
from ._conllu import NUM_FIELDS
from ._lines import check_length, read_lines

_DOCUMENT = "-DOCSTART-"


def tagged_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Columns of a tagged file whose tag columns have these names; `ccg` brings `ccg_left` and `ccg_right`."""
    if clash := sorted(set(names) & (NAMED_COLUMNS - {"upos", "deprel"})):
        raise UserError(f"A tag column cannot be called {clash[0]}: that column of a corpus means something else.")
    parts = ("ccg_left", "ccg_right") if "ccg" in names else ()
    return ("text", "words", *names, *parts)


def conll_tags(path: Path) -> tuple[str, ...] | None:
    """Names for the tag columns of a `.conll` file, by its first word: `tag` is the last one (in CoNLL-2003 the named
    entity), those before it are `tag_1`, `tag_2`, ...; None for one in CoNLL-U, which has ten fields, or without tags.
    """
    words = (line for _, line in read_lines(path) if line.strip() and not line.startswith(("#", _DOCUMENT)))
    fields = _fields(next(words, ""), blanks=True)
    if len(fields) < 2 or len(fields) == NUM_FIELDS:
        return None
    return (*(f"tag_{number}" for number in range(1, len(fields) - 1)), "tag")


def read_tagged(path: Path, names: Sequence[str], blanks: bool = False) -> Iterator[Row | None]:
    """Sentences of `word<TAB>tag…` lines with blank lines between them; with `blanks` there may be blanks instead of
    tabs, and lines with -DOCSTART- are no words.

    Raises:
        UserError: A line does not have one word and as many tags as there are names.
    """
    block: list[list[str]] = []
    for number, line in read_lines(path):
        if blanks and line.startswith(_DOCUMENT):
            continue
        if line.strip():
            block.append(_cells(path, number, line, names, blanks))
            check_length(path, number - len(block) + 1, len(block))
        elif block:
            yield _sentence(block, names)
            block = []
    if block:
        yield _sentence(block, names)


def _fields(line: str, blanks: bool) -> list[str]:
    return line.split() if blanks and "\t" not in line else line.split("\t")


def _cells(path: Path, number: int, line: str, names: Sequence[str], blanks: bool) -> list[str]:
    cells = _fields(line, blanks)
    if len(cells) != 1 + len(names) or not all(cells):
        raise UserError(
            f"{path}, line {number}: a word and {len(names)} tag(s) separated by tabs were expected "
            f"({', '.join(names)}), {len(cells)} field(s) found.\nCorrect the line, or name the tag columns."
        )
    return cells


def _sentence(block: list[list[str]], names: Sequence[str]) -> Row:
    words, *tags = (list(column) for column in zip(*block, strict=True))
    row: Row = {"text": " ".join(words), "words": words, **dict(zip(names, tags, strict=True))}
    if "ccg" in names:
        row["ccg_left"], row["ccg_right"] = (list(part) for part in zip(*map(split_category, row["ccg"]), strict=True))
    return row
