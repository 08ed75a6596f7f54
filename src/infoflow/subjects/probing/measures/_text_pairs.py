"""Pairs of texts to compare, with optional human scores, from a file."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoflow.corpus import check_columns, printable, read_cells, read_objects
from infoflow.foundation import UserError, as_written, current_display, digest

Cells = Mapping[str, Any]

_SIDES = ("candidate", "reference")
_NAMES = (*_SIDES, "score")
_SUFFIXES = (".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPairs:
    """Candidates and references, in the order of a file."""

    name: str
    candidates: tuple[str, ...]
    references: tuple[str, ...]
    human: tuple[float, ...] | None = None
    """Human score of each pair; higher means more similar."""

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def digest(self) -> str:
        """Digest of the texts and scores; independent of the file they came from."""
        return digest([self.candidates, self.references, self.human])


def read_text_pairs(path: Path | str, columns: Sequence[str | int] = ()) -> TextPairs:
    """The pairs of a file, plain or .gz.

    | file     | holds                                                                                           |
    |----------|-------------------------------------------------------------------------------------------------|
    | `.tsv`   | candidate, reference and optionally score, separated by tabs; a first line may name the columns |
    | `.jsonl` | JSON objects with `candidate`, `reference` and optionally `score`                               |

    Args:
        path: The file.
        columns: Columns of the candidate, the reference and optionally the score: names, or numbers from 1 for a table
            without a header. Default: the names above, or the first columns of a table without a header.

    Raises:
        UserError: The file is missing or malformed, a text is empty, or a score is not a number.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"There is no file {path} of pairs. Check the path.")
    if not path.name.endswith(_SUFFIXES):
        raise UserError(f"Pairs are read from {', '.join(_SUFFIXES)}. Got {path}.\nGive it such a name, or convert it.")
    if columns and len(columns) not in (2, 3):
        raise UserError(
            "The columns of pairs are two or three: candidate, reference and perhaps score. Got "
            f"{', '.join(map(str, columns))}."
        )
    requested = [str(column) for column in columns]
    records = read_objects(path) if ".jsonl" in path.name else _rows(path, requested)
    names, found, others = requested if requested and not _numbers(requested) else list(_NAMES), [], set()
    for number, record in records:
        found.append(_pair(path, number, record, names))
        others |= record.keys() - names
    if not found:
        raise UserError(f"{path} holds no pairs. Write one to a line: candidate<TAB>reference.")
    human = [score for _, _, score in found]
    if not requested and others and human[0] is None:
        current_display().note(
            f"{path} has no column called score, so human scores are not read. Its other columns are "
            f"{', '.join(map(printable, sorted(others)))}: name the one with the scores by --columns "
            "candidate,reference,NAME."
        )
    if any(score is None for score in human) and any(score is not None for score in human):
        raise UserError(
            f"{path}: {sum(score is None for score in human):,} of {len(human):,} pairs have no score.\n"
            "Give every pair one, or none."
        )
    return TextPairs(
        name=path.name,
        candidates=tuple(first for first, _, _ in found),
        references=tuple(second for _, second, _ in found),
        human=None if human[0] is None else tuple(float(score) for score in human if score is not None),
    )


def _numbers(columns: Sequence[str]) -> bool:
    """Whether columns are selected by number."""
    return bool(columns) and all(column.isascii() and column.isdecimal() for column in columns)


def _pair(path: Path, number: int, record: Cells, names: Sequence[str]) -> tuple[str, str, float | None]:
    texts = [record.get(name) for name in names[:2]]
    for name, text in zip(names[:2], texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            got = "nothing" if text is None or text == "" else as_written(text)
            raise UserError(
                f"{path}, line {number}: a pair has two texts. Its {name} is {got}.\nComplete or delete the line; "
                "other columns are named by --columns CANDIDATE,REFERENCE,SCORE."
            )
    score = record.get(names[2]) if len(names) > 2 else None
    return str(texts[0]).strip(), str(texts[1]).strip(), _score(path, number, score)


def _score(path: Path, number: int, given: Any) -> float | None:
    if given is None or (isinstance(given, str) and not given.strip()):
        return None
    try:
        value = math.nan if isinstance(given, bool | list | dict) else float(given)
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{path}, line {number}: the human score must be a number. Got {as_written(given)}.")
    return value


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Cells]]:
    """The lines of a table keyed by column name, or by number if the table has no header."""
    names: list[str] | None = None
    for number, cells in read_cells(path):
        if not cells:
            continue
        if names is None:
            first = [cell.strip() for cell in cells]
            names = _header(path, first, columns)
            if not _numbers(columns) and names == first:
                continue
            texts = [int(column) for column in columns[:2]] or [1, 2]
            check_columns(path, texts, texts, ("numbers",))  # one text may have many references
        if len(cells) < len(names) if columns else len(cells) < 2:
            raise UserError(
                f"{path}, line {number}: {max(len(names), 2)} tab-separated cells were expected. Got {len(cells)}.\n"
                "Correct the line."
            )
        yield number, _by_name(cells, names, columns)


def _header(path: Path, first: list[str], columns: Sequence[str]) -> list[str]:
    """The column names from the first line of a table, if that line is a header."""
    if columns and not _numbers(columns):
        if missing := [name for name in columns if name not in first]:
            raise UserError(
                f"{path} has no column {as_written(missing[0])}: its first line names {', '.join(first)[:200]}.\n"
                "For a table without column names, give numbers: --columns 1,2,3."
            )
        return first
    if columns:
        highest = max(int(column) for column in columns)
        if min(int(column) for column in columns) < 1 or highest > len(first):
            raise UserError(f"{path} has {len(first)} columns, numbered from 1. Got --columns {','.join(columns)}.")
        return [str(index) for index in range(1, highest + 1)]
    return first if set(_SIDES) <= set(first) else list(_NAMES[: min(len(first), 3)])


def _by_name(cells: Sequence[str], names: Sequence[str], columns: Sequence[str]) -> Cells:
    named = dict(zip(names, cells, strict=False))
    return dict(zip(_NAMES, map(named.__getitem__, columns), strict=False)) if _numbers(columns) else named
