"""The columns of a corpus and their Arrow types."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
"""Column name → value of one sentence, as readers yield it."""

WORD_STARTS = "word_starts"
"""The character of the text at which each word begins: in every table with words, but not a public column."""

_TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "document": pa.int64(),
    "translation": pa.string(),
    "label": pa.string(),
    "second": pa.string(),
    "question": pa.string(),
    "choices": pa.list_(pa.string()),
    "answers": pa.list_(pa.string()),
    "answer_starts": pa.list_(pa.int32()),
    "references": pa.list_(pa.string()),
    "bad": pa.string(),
    "part": pa.string(),
    "words": pa.list_(pa.string()),
    WORD_STARTS: pa.list_(pa.int32()),
    "upos": pa.list_(pa.string()),
    "head": pa.list_(pa.int32()),
    "deprel": pa.list_(pa.string()),
}
NAMED_COLUMNS = frozenset(_TYPES)
"""Columns that are fields of `Sentence`; every other column is a per-word tag."""
WHOLE_COLUMNS = NAMED_COLUMNS - {"words", WORD_STARTS, "upos", "head", "deprel"}
"""Columns with one value per row: texts, labels, questions."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of a corpus with these columns."""
    return pa.schema([(name, _TYPES.get(name, pa.list_(pa.string()))) for name in columns])
