"""Reads a dataset of the Hugging Face `datasets` library."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset, DatasetDict, IterableDataset, IterableDatasetDict

from infoflow.foundation import UserError, as_written

from ._columns import WHOLE_COLUMNS, Row
from ._running_text import running_text
from ._tables import LISTED, beside_value, completed, readers
from ._values import label, look_up, plain_text, sentence

_OF_SENTENCES = {"text", "translation", "bad", "second", "question"}

Getter = tuple[str, ...]
"""The keys from a row of a dataset to a value: `translation.en` is `("translation", "en")`."""


def read_dataset(dataset: Dataset | IterableDataset, columns: Mapping[str, str]) -> Iterator[Row | None]:
    """Sentences of a dataset; `columns` maps a corpus column to a (dotted) column of the dataset.

    Class labels become their names, "" for a word without one (-1). Without a text column the text is the words, joined
    by `running_text`.

    Raises:
        UserError: A column of words or tags holds one value per sentence.
    """
    labels = {name: _label_names(dataset, source) for name, source in columns.items()}
    paths = {name: tuple(source.split(".")) for name, source in columns.items()}
    # Unused columns may need libraries for images or sound.
    chosen = dataset.select_columns(list(dict.fromkeys(path[0] for path in paths.values())))
    read = readers(columns)
    for number, record in enumerate(_records(chosen), start=1):
        row: Row = {name: _value(record, name, path, labels[name], number, read) for name, path in paths.items()}
        if "text" not in row:
            row["text"] = running_text(row["words"] or ())[0]
        if _holds_sentence(row):
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
    """The dataset, if it is one split with those columns; else a UserError."""
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
    path: Getter,
    labels: list[str] | None,
    number: int,
    read: Mapping[str, Callable[..., str | None]],
) -> Any:
    value = look_up(record, ".".join(path))
    if name == "document":
        return value
    if name == "label":
        if labels is not None and value is not None:
            return labels[value] if 0 <= value < len(labels) else None
        return label(value, "the dataset", number)
    if name in LISTED:
        return beside_value(name, value, "the dataset", number, ".".join(path))
    if name in _OF_SENTENCES:
        return read.get(name, sentence)(value, "the dataset", number, ".".join(path))
    if value is None:
        return None
    if not isinstance(value, list | tuple | np.ndarray):
        raise UserError(
            f"The column {as_written('.'.join(path))} must hold a list with one value per word. "
            f"Got {as_written(value)} for a sentence.\n"
            "A label of the whole sentence is not a tag: leave that column out."
        )
    if labels is not None:
        return [labels[index] if index is not None and 0 <= index < len(labels) else "" for index in value]
    if name == "head":
        return [_head(head, len(value), ".".join(path), number) for head in value]
    return ["" if item is None else plain_text(str(item), "the dataset", number, ".".join(path)) for item in value]


def _head(head: Any, words: int, column: str, number: int) -> int:
    if isinstance(head, int | np.integer) and not isinstance(head, bool) and -1 <= head < words:
        return int(head)
    raise UserError(
        f"The column {as_written(column)} must hold the index of each word's head, from 0 to {words - 1}, or -1 for "
        "the root. "
        f"Got {as_written(head)} in row {number}.\nIf heads count from 1, subtract 1."
    )


def _check_words(row: Row, number: int) -> None:
    """Check that every list has one value per word."""
    for name, values in row.items():
        if name not in WHOLE_COLUMNS and "words" in row and len(values or ()) != len(row["words"]):
            raise UserError(
                f"The column of {name} must hold one value per word. In row {number} it has {len(values or ())}, of "
                f"{len(row['words'])} words.\nCorrect the row, or leave the column out."
            )


def _holds_sentence(row: Row) -> bool:
    return all(row[name] for name in ("text", "words", "translation") if name in row)
