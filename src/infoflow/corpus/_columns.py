"""A sentence of a corpus: its columns, their Arrow types, and the conversion of users' values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from infoflow.foundation import OwnWord, UserError, as_written, is_unicode

from ._lines import LONGEST_LINE

Row = dict[str, Any]
"""Column name → value of one sentence, as readers yield it."""

WORD_STARTS = "word_starts"
"""The character of the text at which each word begins: in every table with words, but not a public column."""

RENDERED = "rendered"
"""The digest of the template that rendered a conversation; control tokens in such a text stay control tokens."""

_TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    RENDERED: pa.string(),
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
ENTITY = "entity"
"""The column of coreference brackets in a treebank that has `Entity=` in MISC; elsewhere it may hold tags."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of a corpus with these columns."""
    return pa.schema([(name, _TYPES.get(name, pa.list_(pa.string()))) for name in columns])


@dataclass(frozen=True, kw_only=True, slots=True)
class TextColumns:
    """Where a corpus stores its sentences."""

    text_column: OwnWord = ""  # column of the sentences, if the corpus and its other parts are tables or datasets
    translation_column: OwnWord = ""
    document_column: OwnWord = ""  # column of each sentence's document name, for objectives that read documents
    documents: bool = False  # text files separate documents by blank lines; CoNLL-U begins each with # newdoc


def sentence(value: Any, where: str, number: int, column: str = "") -> str | None:
    """The sentence without surrounding white space; None if it is missing or blank.

    `where`, `number` (counted from 1) and `column` are for messages.
    """
    if is_missing(value):
        return None
    return plain_text(value, where, number, column).strip()


def plain_text(value: Any, where: str, number: int, column: str = "") -> str:
    """The value unchanged if it is text of at most `LONGEST_LINE` characters; else a UserError."""
    if not isinstance(value, str):
        wrong = f"holds {as_written(value)}, not text.\nName a column of sentences."
    elif len(value) > LONGEST_LINE:
        wrong = f"has {len(value):,} characters. A sentence may have at most {LONGEST_LINE:,}.\nSplit it."
    elif "\x00" in value:
        wrong = "contains a zero byte, which is not text.\nRemove it."
    elif not is_unicode(value):
        wrong = (
            "contains half of a surrogate pair, which is not Unicode text.\nWrite the whole character, or remove it."
        )
    else:
        return value
    raise UserError(f"{where}, {number}{f', column {column}' if column else ''}: {wrong}")


def label(value: Any, where: str, number: int) -> str | None:
    """A class or regression target: text, or a number or truth value as text; None if missing."""
    if is_missing(value) or isinstance(value, str):
        return sentence(value, where, number, "label") or None
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating) and np.isfinite(value):
        return repr(float(value))
    raise UserError(
        f"{where}, {number}: a label must be text or a number. Got {as_written(value)}.\nName another column."
    )


def texts(value: Any, where: str, number: int, column: str = "") -> list[str]:
    """A list of texts, none of them blank."""
    entries = list(value) if isinstance(value, list | tuple | np.ndarray) else None
    found = [sentence(entry, where, number, column) for entry in entries or ()]
    if entries is None or not all(found):
        got = as_written(value) if entries is None else "a list with a blank text"
        raise UserError(
            f"{where}, {number}{f', column {column}' if column else ''}: expected a list of texts. Got {got}.\n"
            "Correct the row, or name another column."
        )
    return [text for text in found if text]


def passage(value: Any, where: str, number: int, column: str = "") -> str | None:
    """One text, from a text or from a list of dialogue turns, sentences or facts.

    Turns and sentences are joined by spaces; facts, each a list of texts, become `subject | relation | object && ...`.
    """
    if not isinstance(value, list | tuple | np.ndarray):
        return sentence(value, where, number, column)
    if len(value) and all(isinstance(entry, list | tuple | np.ndarray) for entry in value):
        return " && ".join(" | ".join(listed(entry, where, number, column)) for entry in value)
    return " ".join(listed(value, where, number, column))


def first_text(value: Any, where: str, number: int, column: str = "") -> str | None:
    """A text, or the first of a list of texts; None if missing."""
    found = listed(value, where, number, column)
    return found[0] if found else None


def listed(value: Any, where: str, number: int, column: str = "") -> list[str]:
    """The nonblank texts of a list, or a single text as a list; empty if missing."""
    entries = value if isinstance(value, list | tuple | np.ndarray) else [value]
    return [text for entry in entries if (text := sentence(entry, where, number, column))]


def places(value: Any, where: str, number: int, column: str = "") -> list[int]:
    """Start characters in a text: a list of whole numbers, or a single one."""
    entries = list(value) if isinstance(value, list | tuple | np.ndarray) else [] if is_missing(value) else [value]
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, int | np.integer) or not 0 <= entry < 1 << 31:
            raise UserError(
                f"{where}, {number}{f', column {column}' if column else ''}: expected character offsets from 0. Got "
                f"{as_written(entry)}.\nCorrect the row, or name another column."
            )
    return [int(entry) for entry in entries]


def pair(text: str | None, translation: str | None) -> Row | None:
    """A row of a parallel corpus; None if either side is missing or blank."""
    return {"text": text, "translation": translation} if text and translation else None


def look_up(record: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or of a nested key: `translation.en`; None if missing."""
    if column in record:
        return record[column]
    value: Any = record
    for key in column.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def is_missing(value: Any) -> bool:
    """Whether the value is missing: None, NaN, or pandas' equivalent."""
    return value is None or (not isinstance(value, str) and bool(pd.api.types.is_scalar(value) and pd.isna(value)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """A sentence. Fields that the corpus lacks are None (`tags`: absent).

    Per-word lists have one entry per word of `words`; `head` counts words from 0, with −1 for the root.
    """

    id: int  # row in the original corpus
    text: str
    rendered: str | None = None  # for a conversation, the digest of its template
    document: int | None = None  # number of its document
    translation: str | None = None
    label: str | None = None  # of the whole sentence: its class, or the phenomenon of a minimal pair
    second: str | None = None  # for a pair of texts, the second one
    question: str | None = None  # question about the text
    choices: list[str] | None = None  # answers to choose from, one of them correct
    answers: list[str] | None = None  # correct answers, contained in the text; empty if there is none
    answer_starts: list[int] | None = None  # start character of each answer in the text
    references: list[str] | None = None  # correct targets in addition to `translation`
    bad: str | None = None  # version of `text` made unacceptable by a minimal change
    part: str | None = None  # `test` in a corpus with marked test sentences, else `train`
    words: list[str] | None = None
    word_starts: list[int] | None = None  # the character of `text` at which each word begins
    upos: list[str] | None = None  # Universal POS tags
    head: list[int] | None = None  # word index of the governor
    deprel: list[str] | None = None  # Universal Dependencies relation to the governor
    tags: dict[str, list[str]] = field(default_factory=dict)  # other per-word tags by column, such as `ccg`


def sentences_in(columns: dict[str, list]) -> Iterator[Sentence]:
    """The sentences of a batch of columns, with their ids."""
    named = [name for name in columns if name in NAMED_COLUMNS or name == "id"]
    tags = [name for name in columns if name not in named]
    for i in range(len(columns["id"])):
        yield Sentence(**{name: columns[name][i] for name in named}, tags={name: columns[name][i] for name in tags})
