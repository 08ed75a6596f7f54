"""Reads sentences from objects: lists, pandas or polars frames, Hugging Face datasets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from infoflow._transformers import ClassLabel, Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from infoflow.foundation import UserError, as_written

from ._alignment import running_text
from ._columns import WHOLE_COLUMNS, Row, label, look_up, pair, plain_text, sentence
from ._tables import LISTED, check_columns, completed, extra_value, readers, table_rows


def read_sentences(
    sentences: Sequence[Any], parallel: bool, where: str, documents: Sequence[Any] | np.ndarray | None = None
) -> Iterator[Row | None]:
    """Rows of a list of sentences, or of pairs if it is `parallel`; None for a blank or missing sentence."""
    rows = _read_list(sentences, parallel, where)
    if documents is None:
        yield from rows
        return
    if len(documents) != len(sentences):
        raise UserError(
            f"{where}: documents must have one name per sentence. Got {len(documents)} for {len(sentences)} sentences."
        )
    for row, document in zip(rows, documents, strict=True):
        yield row and {**row, "document": document}


def _read_list(sentences: Sequence[Any], parallel: bool, where: str) -> Iterator[Row | None]:
    for number, entry in enumerate(sentences, start=1):
        if is_pair(entry) != parallel:
            raise UserError(
                f"{where}: all entries must be sentences, or all pairs of a sentence and its translation. Entry "
                f"{number} is {as_written(entry)}, and entry 1 {as_written(sentences[0])}."
            )
        if not parallel:
            text = sentence(entry, where, number)
            yield {"text": text} if text else None
        elif len(entry) != 2:
            raise UserError(f"{where}: a pair has two entries. Entry {number} has {len(entry)}.")
        else:
            yield pair(*(sentence(side, where, number) for side in entry))


def is_pair(entry: Any) -> bool:
    """Whether an entry of a list is a pair of a sentence and its translation."""
    return isinstance(entry, list | tuple)


def is_frame(value: Any) -> bool:
    """Whether the value is a pandas or polars frame; works without these libraries."""
    return type(value).__module__.partition(".")[0] in ("pandas", "polars") and type(value).__name__ == "DataFrame"


def read_frame(
    frame: Any, text: str | None, translation: str | None, document: str | None = None, **extra: str
) -> Iterator[Row | None]:
    """Rows of a frame's columns; None if a sentence is missing or blank."""
    where = f"the {type(frame).__module__.partition('.')[0]} frame"
    check_columns(where, list(frame.columns), text, translation, document, *extra.values())
    named = [column for column in (text, translation, document, *extra.values()) if column]
    sources = list(dict.fromkeys(_source(frame, column) for column in named))
    records = (dict(zip(sources, cells, strict=True)) for cells in zip(*(frame[one] for one in sources), strict=True))
    return table_rows(enumerate(records, start=1), where, str(text), translation, document, extra)


def frame_holds(frame: Any, column: str) -> bool:
    """Whether the first row of a frame has a value in a column, or under a nested key."""
    source = _source(frame, column)
    first = next(iter(frame[source]), None) if source in frame.columns else None
    return look_up({source: first}, column) is not None


def _source(frame: Any, column: str) -> str:
    """The column of a frame that holds a column's values, directly or under a nested key."""
    return column if column in frame.columns else column.split(".")[0]


_OF_SENTENCES = {"text", "translation", "bad", "second", "question"}


def read_dataset(dataset: Dataset | IterableDataset, columns: Mapping[str, str]) -> Iterator[Row | None]:
    """Sentences of a dataset; `columns` maps a corpus column to a (dotted) column of the dataset.

    Class labels become their names, "" for a word without one (-1). Without a text column the text is the words, joined
    by `running_text`.
    """
    labels = {name: _label_names(dataset, source) for name, source in columns.items()}
    # Unused columns may need libraries for images or sound.
    chosen = dataset.select_columns(list(dict.fromkeys(source.split(".")[0] for source in columns.values())))
    read = readers(columns)
    for number, record in enumerate(_records(chosen), start=1):
        row: Row = {name: _value(record, name, source, labels[name], number, read) for name, source in columns.items()}
        if "text" not in row:
            row["text"] = running_text(row["words"] or ())[0]
        if all(row[name] for name in ("text", "words", "translation") if name in row):
            _check_words(row, number)
            yield completed(row, "the dataset", number)
        else:
            yield None


def _records(dataset: Dataset | IterableDataset) -> Iterator[Mapping[str, Any]]:
    try:
        yield from dataset
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"The dataset is damaged: {error}.\nLoad or create it again.") from error


def one_split(dataset: Any, columns: Mapping[str, str]) -> Dataset | IterableDataset:
    """Return the dataset if it is one split with those columns; else raise a UserError."""
    if isinstance(dataset, DatasetDict | IterableDatasetDict):
        raise UserError(
            f'The dataset has splits {", ".join(dataset)}: choose one, such as dataset["{next(iter(dataset))}"].'
        )
    if not isinstance(dataset, Dataset | IterableDataset):
        raise UserError(
            f"Expected a dataset of the `datasets` library. Got {as_written(dataset)}.\n"
            'Use one split, such as load_dataset(..., split="train").'
        )
    if not {"text", "words"} & set(columns):
        raise UserError("A corpus needs sentences: name the column of the text, or the column of the words.")
    known = dataset.column_names
    for source in columns.values():
        if known is not None and source.split(".")[0] not in known:
            raise UserError(
                f"The dataset has no column {as_written(source)}. Its columns: {', '.join(known)}.\n"
                "Name the column of the sentences: --text-column NAME (in Python text_column=)."
            )
    return dataset


def dataset_holds(dataset: Dataset | IterableDataset, column: str) -> bool:
    """Whether a dataset has a column or nested key, as far as its features tell."""
    feature: Any = dataset.features
    for key in column.split("."):
        feature = getattr(feature, "feature", feature)
        feature = feature.get(key) if isinstance(feature, Mapping) else None
    return feature is not None


def _label_names(dataset: Dataset | IterableDataset, source: str) -> list[str] | None:
    feature = (dataset.features or {}).get(source)
    feature = getattr(feature, "feature", feature)
    return feature.names if isinstance(feature, ClassLabel) else None


def _value(
    record: Mapping[str, Any],
    name: str,
    source: str,
    labels: list[str] | None,
    number: int,
    read: Mapping[str, Callable[..., str | None]],
) -> Any:
    value = look_up(record, source)
    if name == "document":
        return value
    if name == "label":
        if labels is not None and value is not None:
            return labels[value] if 0 <= value < len(labels) else None
        return label(value, "the dataset", number)
    if name in LISTED:
        return extra_value(name, value, "the dataset", number, source)
    if name in _OF_SENTENCES:
        return read.get(name, sentence)(value, "the dataset", number, source)
    if value is None:
        return None
    if not isinstance(value, list | tuple | np.ndarray):
        raise UserError(
            f"The column {as_written(source)} must hold a list with one value per word. "
            f"Got {as_written(value)} for a sentence.\n"
            "A label of the whole sentence is not a tag: leave that column out."
        )
    if labels is not None:
        return [labels[index] if index is not None and 0 <= index < len(labels) else "" for index in value]
    if name == "head":
        return [_head(head, len(value), source, number) for head in value]
    return ["" if item is None else plain_text(str(item), "the dataset", number, source) for item in value]


def _head(head: Any, words: int, column: str, number: int) -> int:
    if isinstance(head, int | np.integer) and not isinstance(head, bool) and -1 <= head < words:
        return int(head)
    raise UserError(
        f"The column {as_written(column)} must hold the index of each word's head, from 0 to {words - 1}, or -1 for "
        f"the root. Got {as_written(head)} in row {number}.\nIf heads count from 1, subtract 1."
    )


def _check_words(row: Row, number: int) -> None:
    """Check that every list has one value per word."""
    for name, values in row.items():
        if name not in WHOLE_COLUMNS and "words" in row and len(values or ()) != len(row["words"]):
            raise UserError(
                f"The column of {name} must hold one value per word. In row {number} it has {len(values or ())}, of "
                f"{len(row['words'])} words.\nCorrect the row, or leave the column out."
            )
