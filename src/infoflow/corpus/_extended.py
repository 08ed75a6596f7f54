"""The rows of a corpus with additions: labels of sentences, another corpus as test part."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infoflow.foundation import UserError

from ._abstract_sentences import AbstractSentences
from ._columns import WORD_STARTS, Row
from ._lines import read_lines


def labelled_rows(corpus: AbstractSentences, labels: Sequence[str] | str | Path) -> tuple[Iterator[Row], list[str]]:
    """Rows with the label of each sentence, and their columns; `labels` as in `Corpus.with_labels`.

    Raises:
        UserError: The number of labels differs from the number of sentences, or the corpus has labels already.
    """
    where = str(labels) if isinstance(labels, str | Path) else "The list of labels"
    found = [line for _, line in read_lines(Path(labels))] if isinstance(labels, str | Path) else list(labels)
    if len(found) != len(corpus):
        raise UserError(
            f"{where} must have one label for each sentence of {corpus.name}, {len(corpus):,}. Got {len(found):,}.\n"
            "Blank lines of a text are not sentences, so they must not have labels."
        )
    if "label" in corpus.columns:
        raise UserError(f"{corpus.name} already has labels.\nRead it without its label column, or leave out --labels.")
    columns = sorted(corpus.dataset.column_names)
    rows = (
        {**row, "label": str(label).strip() or None} for row, label in zip(_rows(corpus, columns), found, strict=True)
    )
    return rows, [*columns, "label"]


def replaced_rows(corpus: AbstractSentences, name: str, values: Sequence[Any]) -> tuple[Iterator[Row], list[str]]:
    """Rows with new values in one column, and their columns.

    Raises:
        UserError: The corpus has no such column, or the number of values differs from the number of sentences.
    """
    corpus.require(name)
    if len(values) != len(corpus):
        raise UserError(f"A column of {corpus.name} must have {len(corpus):,} values. Got {len(values):,}.")
    columns = sorted(corpus.dataset.column_names)
    moved = {WORD_STARTS: None} if name in ("text", "words") and WORD_STARTS in columns else {}
    return ({**row, name: value, **moved} for row, value in zip(_rows(corpus, columns), values, strict=True)), columns


def joined_rows(first: AbstractSentences, test: AbstractSentences) -> tuple[Iterator[Row], list[str]]:
    """Rows of both with their `part`, and the columns that both have; documents are not joined."""
    shared = sorted({*first.dataset.column_names} & {*test.dataset.column_names} - {"document", "part"})
    rows = (
        {**row, "part": part} for part, corpus in (("train", first), ("test", test)) for row in _rows(corpus, shared)
    )
    return rows, [*shared, "part"]


def _rows(corpus: AbstractSentences, columns: Sequence[str], size: int = 1024) -> Iterator[Row]:
    for start in range(0, len(corpus), size):
        part = corpus.dataset.select_columns(list(columns))[np.arange(start, min(start + size, len(corpus)))]
        for values in zip(*(part[column] for column in columns), strict=True):
            yield dict(zip(columns, values, strict=True))
