"""Reads sentences from a named column of a table: CSV, tab-separated values, JSON lines, JSON, Parquet."""

import csv
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from infoflow.foundation import UserError, as_written, current_display, json_fault

from ._columns import Row
from ._lines import check_readable, open_bytes, read_lines
from ._values import first_text, label, listed, look_up, pair, passage, places, sentence, texts

LARGEST_JSON = 100_000_000
"""Bytes of a JSON document at most: it is read as a whole, unlike JSON lines."""

NEEDED = frozenset({"bad", "second", "question", "choices"})
"""Columns beside the text that every row must have something in."""
ASKED = frozenset({"question", "choices", "references"})
"""Columns of what is asked about a text, or of further texts to write: the text itself may then be a list."""
LISTED = frozenset({"choices", "answers", "answer_starts", "references"})
"""Columns with a list in each row."""

_HEADERS = {
    *("id", "label", "lang", "language", "sentence", "sentence1", "sentence2", "source", "src", "target", "text"),
    *("tgt", "title", "translation", "de", "en", "es", "fr", "it"),
}  # cells that a first line of real sentences does not consist of

Records = Iterator[tuple[int, Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RecordTable:
    """The columns of a table, and its records with their numbers, read as they are asked for."""

    columns: Sequence[str]
    records: Callable[[Sequence[str]], Records]  # of these columns at least


def is_table(path: Path) -> bool:
    """Whether the file's name says that it is a table; one of tab-separated values may have no header."""
    return _suffix(path) in _READERS


def needs_columns(path: Path) -> bool:
    """Whether its columns have names: always, but for tab-separated values that begin with a pair of sentences."""
    if _suffix(path) != ".tsv":
        return True
    first = next(read_lines(path), (0, ""))[1]
    return first != "" and {cell.strip().lower() for cell in first.split("\t")} <= _HEADERS


def table_columns(path: Path) -> list[str]:
    """The names of a table's columns; none of a file that is no table.

    Raises:
        UserError: The file is damaged.
    """
    check_readable(path)
    return [str(column) for column in _READERS[_suffix(path)](path).columns] if is_table(path) else []


def starts_beside(answers: str | None, holds: Callable[[str], bool]) -> str | None:
    """The column of the characters at which nested answers begin: of `answers.text`, as Hugging Face's SQuAD has them,
    `answers.answer_start`. None of others, or where the table does not hold it."""
    parent, dot, key = (answers or "").rpartition(".")
    starts = f"{parent}.answer_start"
    return starts if dot and key == "text" and holds(starts) else None


def table_holds(path: Path, column: str) -> bool:
    """Whether the first record of a table has something in a column, or under a key inside.

    Raises:
        UserError: The file is damaged.
    """
    check_readable(path)
    _, record = next(_READERS[_suffix(path)](path).records([column]), (0, {}))
    return look_up(record, column) is not None


def read_columns(
    path: Path, text: str | None, translation: str | None, document: str | None = None, **beside: str
) -> Iterator[Row | None]:
    """Sentences of the column `text`, their translations, the names of their documents, and what `beside` names
    (`label`, `bad`, `second`, ...); None where a sentence is missing or blank. A text that something is asked about may
    be a list: the turns of a dialogue.

    A table may lack the column of `references`, as the training part of a set with one text for each does.

    Raises:
        UserError: The columns are not named or not there, or the file is damaged.
    """
    check_readable(path)
    table = _READERS[_suffix(path)](path)
    needed = {name: column for name, column in beside.items() if name != "references" or column in table.columns}
    if needed.keys() != beside.keys():
        current_display().note(f"{path} has no column {beside['references']}: there is one text to write for each.")
    check_columns(str(path), table.columns, text, translation, document, *needed.values())
    assert text is not None  # the check says so otherwise
    read = readers(beside)
    for number, record in table.records([c for c in (text, translation, document, *needed.values()) if c]):
        source = read["text"](look_up(record, text), str(path), number, text)
        if translation is None:
            row: Row | None = {"text": source} if source else None
        else:
            row = pair(source, read["translation"](look_up(record, translation), str(path), number, translation))
        if row and beside:
            row = beside_text(
                row, {name: look_up(record, column) for name, column in beside.items()}, str(path), number
            )
        yield {**row, "document": look_up(record, document)} if row and document else row


def readers(beside: Collection[str]) -> dict[str, Callable[..., str | None]]:
    """How the text and its translation are read, which may be lists where these columns stand beside them."""
    asked, several = not ASKED.isdisjoint(beside), "references" in beside
    return {"text": passage if asked else sentence, "translation": first_text if several else sentence}


def beside_text(row: Row, values: Mapping[str, Any], where: str, number: int) -> Row | None:
    """The row with its `label`, `bad` sentence and the like; None where one is missing that it cannot do without.

    Raises:
        UserError: A label is neither text nor a number, or another value is no text, or no list of texts.
    """
    return completed(
        {**row, **{name: beside_value(name, v, where, number) for name, v in values.items()}}, where, number
    )


def completed(row: Row, where: str, number: int) -> Row | None:
    """The row, of whose `references` the translation is none; None where it lacks what it cannot do without.

    Raises:
        UserError: There are not as many answers as places of answers.
    """
    if not all(row[name] for name in NEEDED & row.keys()):
        return None
    if {"answers", "answer_starts"} <= row.keys() and len(row["answers"]) != len(row["answer_starts"]):
        raise UserError(
            f"{where}, {number}: each answer begins somewhere. Got {len(row['answers'])} answers and "
            f"{len(row['answer_starts'])} places.\nCorrect the row, or leave the places out."
        )
    if "references" in row:
        row["references"] = [text for text in dict.fromkeys(row["references"]) if text != row.get("translation")]
    return row


def beside_value(name: str, value: Any, where: str, number: int, column: str = "") -> Any:
    """The value of a column beside the text, as a corpus has it."""
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
    """Raise a UserError that lists the columns unless `text` is one, and the others where they are named."""
    listed = f"Its columns: {', '.join(map(str, columns)) or '(none)'}."
    if not text and not columns:
        raise UserError(f"{name} is a table without columns or rows.\nGive one with text in it.")
    if not text:
        raise UserError(
            f"{name} is a table, so the column of its sentences must be named. No name was given.\n{listed} "
            "Write --text-column NAME, and --translation-column NAME for pairs (in Python text_column=, "
            "translation_column=; in a plan under [corpus])."
        )
    for column in (text, translation, document, *others):
        if column is not None and column not in columns and column.split(".")[0] not in columns:
            named = (
                " Name that of the sentences: --text-column NAME (in Python text_column=)." if column == text else ""
            )
            raise UserError(f"{name} has no column {column}.\n{listed}{named}")
        if column is not None and list(columns).count(column) > 1:
            raise UserError(f"{name} has several columns {column}.\nGive each its own name.")
    if text == translation:
        raise UserError(f"The sentences and their translations must be two columns. Got {text} for both.\n{listed}")


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _separated(path: Path, **dialect: Any) -> RecordTable:
    rows = csv.reader((f"{line}\n" for _, line in read_lines(path)), strict=True, **dialect)
    header = [name.strip() for name in next(_cells(path, rows), [])]
    if dialect["delimiter"] == "," and len(header) == 1 and (other := next((c for c in ";\t" if c in header[0]), None)):
        raise UserError(
            f"{path}: cells must be separated by commas, and the first line has {as_written(other)} instead.\n"
            "Write it with commas, or tab-separated as .tsv."
        )

    def records(_: Sequence[str] = ()) -> Records:
        for cells in _cells(path, rows):
            if cells and len(cells) != len(header):
                raise UserError(
                    f"{path}, line {rows.line_num}: as many cells as the first line has were expected, {len(header)}. "
                    f"Got {len(cells)}.\nCorrect the line."
                )
            yield rows.line_num, dict(zip(header, cells, strict=False))

    return RecordTable(columns=header, records=records)


def _cells(path: Path, rows: Any) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as error:
        raise UserError(
            f"{path}, line {rows.line_num}: not CSV ({error}).\nCheck the quotation marks: one that opens a cell "
            f"closes it, and a cell has {csv.field_size_limit():,} characters at most."
        ) from None


def _comma_separated(path: Path) -> RecordTable:
    return _separated(path, delimiter=",")


def _tab_separated(path: Path) -> RecordTable:
    return _separated(path, delimiter="\t", quoting=csv.QUOTE_NONE)


def _json_lines(path: Path) -> RecordTable:
    def records(_: Sequence[str] = ()) -> Records:
        for number, line in read_lines(path):
            if line.strip():
                yield number, _object(parsed_json(line, f"{path}, line {number}"), f"{path}, line {number}")

    return RecordTable(columns=_keys(records()), records=records)


def read_document(path: Path) -> str:
    """The text of a JSON document, plain or .gz.

    Raises:
        UserError: The file cannot be read, is too large, or is not UTF-8.
    """
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
        raise UserError(f"{path}: not UTF-8 at byte {error.start}.\nConvert the file.") from None


def _json(path: Path) -> RecordTable:
    """A list of objects, alone or as the only list of an object; or JSON lines under the wrong name."""
    text = read_document(path)
    first, _, rest = text.lstrip().partition("\n")
    if rest.strip() and _is_object(first):
        return _json_lines(path)
    value = parsed_json(text, str(path))
    lists = [each for each in value.values() if isinstance(each, list)] if isinstance(value, dict) else [value]
    if len(lists) != 1 or not isinstance(lists[0], list):
        raise UserError(f"{path}: a list of objects was expected.\nWrite [{{...}}, {{...}}], or one object per line.")

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
    ".csv": _comma_separated,
    ".tsv": _tab_separated,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".parquet": _parquet,
}


def _damaged(path: Path, error: Exception) -> UserError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return UserError(f"{path} is no Parquet file, or a damaged one: {reason}.\nDownload or write it again.")


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
            f"{where}: not JSON ({json_fault(error)}).\nCorrect it, or name the file .txt to read its lines."
        ) from None


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where}: an object ({{...}}) was expected. Got {as_written(value)}.\nCorrect it.")
    return value


def _keys(records: Iterable[tuple[int, Mapping[str, Any]]]) -> list[str]:
    """The columns of the first object; a later one may leave some out."""
    return list(next(iter(records), (0, {}))[1])
