"""Reads sentences from a named column of a table: CSV, tab-separated values, JSON lines, JSON, Parquet."""

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from infoflow.foundation import UserError, as_written, current_display, json_fault

from ._columns import Row, first_text, label, listed, look_up, pair, passage, places, sentence, texts
from ._formats import advice, kind_by_bytes
from ._lines import check_readable, is_header, is_quoted, open_bytes, read_lines

LARGEST_JSON = 100_000_000
"""Maximum size of a JSON document in bytes, because it is read as a whole, unlike JSON lines."""

NEEDED = frozenset({"bad", "second", "question", "choices"})
"""Columns, apart from the text, that must have a value in every row."""
QUESTION_COLUMNS = frozenset({"question", "choices", "references"})
"""Columns with questions about a text, or with further references; with these, the text itself may be a list."""
LISTED = frozenset({"choices", "answers", "answer_starts", "references"})
"""Columns with a list in each row."""

_ROWS = 100  # rows used to detect a header

Records = Iterable[tuple[int, Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RecordTable:
    """The columns of a table, and its numbered records, read on demand."""

    columns: Sequence[str]
    records: Callable[[Sequence[str]], Records]  # records with at least these columns


def is_table(path: Path) -> bool:
    """Whether the file's name marks a table; one with tab-separated values may have no header."""
    return _suffix(path) in _READERS


def table_columns(path: Path) -> list[str]:
    """The names of a table's columns; empty for a file that is not a table."""
    check_readable(path)
    return [str(column) for column in _READERS[_suffix(path)](path).columns] if is_table(path) else []


def read_records(path: Path) -> Records:
    """The numbered records of a table with all their columns; empty lines are skipped."""
    check_readable(path)
    table = _READERS[_suffix(path)](path)
    return ((number, record) for number, record in table.records(table.columns) if record)


def nested_starts(answers: str | None, holds: Callable[[str], bool]) -> str | None:
    """The column of start characters for nested answers.

    For `answers.text`, as in Hugging Face's SQuAD, it is `answers.answer_start`; None for other names, or if the table
    lacks it.
    """
    parent, dot, key = (answers or "").rpartition(".")
    starts = f"{parent}.answer_start"
    return starts if dot and key == "text" and holds(starts) else None


def table_holds(path: Path, column: str) -> bool:
    """Whether the first record of a table has a value in a column, or under a nested key."""
    check_readable(path)
    _, record = next(iter(_READERS[_suffix(path)](path).records([column])), (0, {}))
    return look_up(record, column) is not None


def read_columns(
    path: Path, text: str | None, translation: str | None, document: str | None = None, **extra: str
) -> Iterator[Row | None]:
    """Sentences of the column `text` with translations, document names, and the columns in `extra`, such as `label`.

    A row is None if a sentence is missing or blank. A text with a question may be a list: the turns of a dialogue.

    A table may lack the column of `references`, as in a training part with a single reference per text.
    """
    check_readable(path)
    table = _opened(path, [text, translation, document, *extra.values()])
    needed = {name: column for name, column in extra.items() if name != "references" or column in table.columns}
    if needed.keys() != extra.keys():
        current_display().note(f"{path} has no column {extra['references']}: each example has a single reference.")
    check_columns(str(path), table.columns, text, translation, document, *needed.values())
    records = table.records([c for c in (text, translation, document, *needed.values()) if c])
    return table_rows(records, str(path), str(text), translation, document, extra)


def table_rows(
    records: Records, where: str, text: str, translation: str | None, document: str | None, extra: Mapping[str, str]
) -> Iterator[Row | None]:
    """Rows of numbered records, as in `read_columns`; `where` names the table in messages."""
    read = readers(extra)
    for number, record in records:
        source = read["text"](look_up(record, text), where, number, text)
        if translation is None:
            row: Row | None = {"text": source} if source else None
        else:
            row = pair(source, read["translation"](look_up(record, translation), where, number, translation))
        if row and extra:
            further = {name: extra_value(name, look_up(record, one), where, number) for name, one in extra.items()}
            row = completed({**row, **further}, where, number)
        yield {**row, "document": look_up(record, document)} if row and document else row


def readers(extra: Collection[str]) -> dict[str, Callable[..., str | None]]:
    """Converters of the text and its translation, which may be lists depending on the other columns."""
    is_passage, several = not QUESTION_COLUMNS.isdisjoint(extra), "references" in extra
    return {"text": passage if is_passage else sentence, "translation": first_text if several else sentence}


def completed(row: Row, where: str, number: int) -> Row | None:
    """The row, with the translation removed from its `references`; None if a required value is missing."""
    if not all(row[name] for name in NEEDED & row.keys()):
        return None
    if {"answers", "answer_starts"} <= row.keys() and len(row["answers"]) != len(row["answer_starts"]):
        raise UserError(
            f"{where}, {number}: each answer needs a character offset. Got {len(row['answers'])} answers and "
            f"{len(row['answer_starts'])} offsets.\nCorrect the row, or leave the offsets out."
        )
    if "references" in row:
        row["references"] = [text for text in dict.fromkeys(row["references"]) if text != row.get("translation")]
    return row


def extra_value(name: str, value: Any, where: str, number: int, column: str = "") -> Any:
    """The value of a column other than the text, in the corpus's form."""
    column = column or name
    if name == "label":
        return label(value, where, number)
    read = {"choices": texts, "answers": listed, "answer_starts": places, "references": listed}.get(name, sentence)
    return read(value, where, number, column)


def check_columns(
    name: str,
    columns: Sequence[Any],
    text: str | None,
    translation: str | None,
    document: str | None = None,
    *others: str,
) -> None:
    """Raise a UserError that lists the columns unless `text` and all other named columns exist."""
    listed = f"Its columns: {', '.join(map(str, columns)) or '(none)'}."
    if not text and not columns:
        raise UserError(f"{name} is a table without columns or rows.\nUse one with text in it.")
    if not text:
        raise UserError(
            f"{name} is a table: name the column of its sentences.\n{listed} "
            "Write --text-column NAME, and --translation-column NAME for pairs (in Python text_column=, "
            "translation_column=; in a plan under [corpus])."
        )
    for column in (text, translation, document, *others):
        if column is not None and column not in columns and column.split(".")[0] not in columns:
            named = (
                " Name the column of the sentences: --text-column NAME (in Python text_column=)."
                if column == text
                else ""
            )
            raise UserError(f"{name} has no column {column}.\n{listed}{named}")
        if column is not None and list(columns).count(column) > 1:
            raise UserError(f"{name} has several columns called {column}.\nGive each a different name.")
    if text == translation:
        raise UserError(f"The sentences and their translations must be two columns. Got {text} for both.\n{listed}")


def _opened(path: Path, named: Sequence[str | None]) -> RecordTable:
    """The table.

    Columns given by numbers that are not names in the first line are positions, from 1; a header is then skipped.
    """
    table = _READERS[_suffix(path)](path)
    numbers = [name for name in named if name]
    if _suffix(path) not in (".csv", ".tsv") or not all(re.fullmatch("[1-9][0-9]{0,5}", name) for name in numbers):
        return table
    columns = list(table.columns)
    # pandas writes numbers from 0 as names; elsewhere digits in the first line are cells of a row.
    if all(name in columns and columns[int(name) :][:1] in ([], [name]) for name in numbers):
        return table
    rows = [list(table.columns), *(list(record.values()) for _, record in islice(table.records(()), _ROWS))]
    places = [str(index) for index in range(1, len(table.columns) + 1)]
    first = [(1, dict(zip(places, table.columns, strict=True)))] if not is_header(rows) else []

    def records(_: Sequence[str] = ()) -> Records:
        yield from first
        for number, record in _READERS[_suffix(path)](path).records(()):
            yield number, dict(zip(places, record.values(), strict=False))

    return RecordTable(columns=places, records=records)


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _separated(path: Path, **dialect: Any) -> RecordTable:
    rows = csv.reader((f"{line}\n" for _, line in read_lines(path)), strict=True, **dialect)
    header = [name.strip() for name in next(_cells(path, rows), [])]
    others = [sign for sign in ";\t|" if sign in header[0]] if len(header) == 1 else []
    if dialect["delimiter"] == "," and others:
        return _separated(path, delimiter=others[0])

    def records(_: Sequence[str] = ()) -> Records:
        for cells in _cells(path, rows):
            if cells and len(cells) != len(header):
                raise UserError(
                    f"{path}, line {rows.line_num}: expected {len(header)} cells, as in the first line. "
                    f"Got {len(cells)}.\nCorrect the line."
                )
            yield rows.line_num, dict(zip(header, cells, strict=False))

    return RecordTable(columns=header, records=records)


def _cells(path: Path, rows: Any) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as error:
        raise UserError(
            f"{path}, line {rows.line_num}: not CSV ({error}).\nCheck that every quotation mark that opens a cell "
            f"is closed, and that cells have at most {csv.field_size_limit():,} characters."
        ) from None


def _tab_separated(path: Path) -> RecordTable:
    quoting = csv.QUOTE_MINIMAL if is_quoted(path) else csv.QUOTE_NONE
    return _separated(path, delimiter="\t", quoting=quoting)


def _json_lines(path: Path) -> RecordTable:
    def records(_: Sequence[str] = ()) -> Records:
        for number, line in read_lines(path):
            if line.strip():
                yield number, _object(parsed_json(line, f"{path}, line {number}"), f"{path}, line {number}")

    return RecordTable(columns=_keys(records()), records=records)


def read_document(path: Path) -> str:
    """The text of a JSON document, plain or .gz."""
    with open_bytes(path) as file:
        content = file.read(LARGEST_JSON + 1)
    if len(content) > LARGEST_JSON:
        raise UserError(
            f"{path}: a JSON document may have {LARGEST_JSON:,} bytes at most, and this one is larger.\n"
            "Write one object per line, as .jsonl."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}.\n{advice(content[:4000])}") from None


def _json(path: Path) -> RecordTable:
    """A list of objects, at the top level or as the only list in an object; or JSON lines with the wrong suffix."""
    text = read_document(path)
    first, _, rest = text.lstrip().partition("\n")
    if rest.strip() and _is_object(first):
        return _json_lines(path)
    value = parsed_json(text, str(path))
    lists = [each for each in value.values() if isinstance(each, list)] if isinstance(value, dict) else [value]
    if len(lists) != 1 or not isinstance(lists[0], list):
        raise UserError(f"{path}: expected a list of objects.\nWrite [{{...}}, {{...}}], or one object per line.")

    def records(_: Sequence[str] = ()) -> Records:
        for number, item in enumerate(lists[0], start=1):
            yield number, _object(item, f"{path}, item {number}")

    return RecordTable(columns=_keys(records()), records=records)


def _parquet(path: Path) -> RecordTable:
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        columns = file.schema_arrow.names
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from error

    def records(wanted: Sequence[str]) -> Records:
        number, kept = 0, [name for name in columns if {name} & {*wanted, *(each.split(".")[0] for each in wanted)}]
        try:
            for batch in file.iter_batches(batch_size=256, columns=kept):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(path, error) from error
        finally:
            file.close()

    return RecordTable(columns=columns, records=records)


_READERS: dict[str, Callable[[Path], RecordTable]] = {
    ".csv": partial(_separated, delimiter=","),
    ".tsv": _tab_separated,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".parquet": _parquet,
}


def _damaged(path: Path, error: Exception) -> UserError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
    with path.open("rb") as file:
        begin = file.read(32)
    if (kind := kind_by_bytes(begin)) and not begin.startswith(b"PAR1"):
        reason = f"it is {kind}"
    return UserError(f"{path} is not a Parquet file, or it is damaged: {reason}.\nDownload or write it again.")


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def parsed_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{where}: not JSON ({json_fault(error)}).\nCorrect it, or rename the file to .txt to read its lines."
        ) from None


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(
            f"{where}: expected an object ({{...}}). Got {as_written(value)}.\n"
            'Write {"text": "..."} for each row, or rename the file to .txt with one text per line.'
        )
    return value


def _keys(records: Records) -> list[str]:
    """The columns of the first object; later ones may omit some."""
    return list(next(iter(records), (0, {}))[1])
