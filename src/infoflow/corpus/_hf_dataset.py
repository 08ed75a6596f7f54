"""Reads a dataset of the Hugging Face `datasets` library."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, IterableDataset, IterableDatasetDict

from infoflow.foundation import UserError

from ._columns import Row

_OF_SENTENCES = {"text", "translation"}

Getter = tuple[str, ...]
"""The keys that lead from a row of a dataset to a value: `translation.en` is `("translation", "en")`."""


def read_dataset(dataset: Dataset | IterableDataset, columns: Mapping[str, str]) -> Iterator[Row | None]:
    """Sentences of a dataset; `columns` maps a corpus column to a (dotted) column of the dataset.

    Class labels become their names, "" where a word has none (-1). Without a text column the text is the words joined
    by spaces.

    Raises:
        UserError: A column of words or tags holds one value per sentence.
    """
    labels = {name: _label_names(dataset, source) for name, source in columns.items()}
    paths = {name: tuple(source.split(".")) for name, source in columns.items()}
    for record in dataset:
        row: Row = {name: _value(record, name, path, labels[name]) for name, path in paths.items()}
        if "text" not in row:
            row["text"] = " ".join(row["words"] or ())
        yield row if _holds_sentence(row) else None


def one_split(dataset: Any, columns: Mapping[str, str]) -> Dataset | IterableDataset:
    """The dataset, if it is one split with those columns; else a UserError."""
    if isinstance(dataset, DatasetDict | IterableDatasetDict):
        raise UserError(
            f'The dataset has splits {", ".join(dataset)}: choose one, such as dataset["{next(iter(dataset))}"].'
        )
    if not isinstance(dataset, Dataset | IterableDataset):
        raise UserError(f"A dataset of the `datasets` library was expected, got {type(dataset).__name__}.")
    if not {"text", "words"} & set(columns):
        raise UserError("A corpus needs sentences: name the column of the text, or the column of the words.")
    known = dataset.column_names
    for source in columns.values():
        if known is not None and source.split(".")[0] not in known:
            raise UserError(f"The dataset has no column {source!r}. Its columns: {', '.join(known)}.")
    return dataset


def _label_names(dataset: Dataset | IterableDataset, source: str) -> list[str] | None:
    feature = (dataset.features or {}).get(source)
    feature = getattr(feature, "feature", feature)
    return feature.names if isinstance(feature, ClassLabel) else None


def _value(record: Mapping[str, Any], name: str, path: Getter, labels: list[str] | None) -> Any:
    value: Any = record
    for key in path:
        value = value[key]
    if name in _OF_SENTENCES:
        return value.strip() if isinstance(value, str) else value
    if value is not None and np.ndim(value) == 0:
        raise UserError(
            f"The column {'.'.join(path)!r} must hold a list with one value per word. Got {value!r} for a sentence.\n"
            "A label of the whole sentence is no tag: leave that column out."
        )
    if labels is not None and value is not None:
        return [labels[index] if index is not None and index >= 0 else "" for index in value]
    if name == "head" or value is None:
        return value
    return ["" if item is None else str(item) for item in value]


def _holds_sentence(row: Row) -> bool:
    return all(row[name] for name in ("text", "words", "translation") if name in row)
