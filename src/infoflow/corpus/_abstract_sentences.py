"""Sentences stored as Arrow tables: reading, counting and encoding them, and rows with added columns."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from infoflow._transformers import Dataset, PreTrainedTokenizerBase
from infoflow.foundation import UserError, block_of, current_display, hash64_array, running_words, shown_by

from ._columns import ENTITY, RENDERED, WHOLE_COLUMNS, WORD_STARTS, Row, Sentence, sentences_in
from ._documents import document_hashes, hashes, normalised, stretches
from ._encoded import Encoded, encode, template_digest
from ._lines import read_lines
from ._store import Stored, as_slice

Side = Literal["text", "translation"]
"""The sentences of a corpus, or their translations."""
Rest = Callable[[np.ndarray], Iterable[object]]


class AbstractSentences:
    """Shared base of a corpus and its parts: rows of an Arrow table."""

    def __init__(self, stored: Stored, name: str) -> None:
        # File names need not be UTF-8, but tables and pages must be.
        self.name = name.encode("utf-8", "replace").decode("utf-8")
        self.digest = stored.digest
        """A hash of the content, sixteen hex digits: equal for the same sentences in the same order."""
        self._stored = stored
        self._rows: np.ndarray | None = None  # None: all
        self._content_ids: np.ndarray | None = None  # None: not computed yet
        if stored.dropped:
            current_display().note(f"{name}: {stored.dropped} lines without a sentence were left out.")

    def __len__(self) -> int:
        return len(self._stored.dataset) if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, index: int | np.integer) -> Sentence: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sentence]: ...
    def __getitem__(self, index: int | np.integer | slice) -> Sentence | list[Sentence]:
        if isinstance(index, slice):
            rows = np.arange(len(self))[index]
            return [sentence for part in self._batches(rows, 1024) for sentence in sentences_in(part)]
        if not -len(self) <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return next(iter(self[slice(int(index) % len(self), int(index) % len(self) + 1)]))

    def __iter__(self) -> Iterator[Sentence]:
        for part in self._batches(np.arange(len(self)), 1024):
            yield from sentences_in(part)

    _repr_html_ = shown_by("corpus_shown")

    def __repr__(self) -> str:
        return f"Corpus({self.name!r}, {len(self):,} sentences, columns: {', '.join(sorted(self.columns))})"

    @property
    def columns(self) -> set[str]:
        """The columns of the sentences: `text`, and for example `translation`, `words`, `head`, `ccg`."""
        return set(self._stored.dataset.column_names) - {WORD_STARTS}

    @property
    def ids(self) -> np.ndarray:
        """The row of each sentence in the original corpus: int64 (sentence,)."""
        return np.arange(len(self), dtype=np.int64) if self._rows is None else self._rows

    @property
    def content_ids(self) -> np.ndarray:
        """A number for each sentence derived from its text: int64 (sentence,).

        Measures choose sentences and bootstrap blocks by these numbers, so the order of lines does not matter. Copies
        of a sentence have different numbers but the same block, because they are not independent observations. In a
        part, copies are counted within the part.
        """
        if self._content_ids is None:
            self._content_ids = content_ids(self.column("text"), self._other_columns)
        return self._content_ids

    @property
    def text_ids(self) -> np.ndarray:
        """A number for each text: int64 (sentence,). Sentences that differ only in case and spacing share it."""
        return (hashes(map(normalised, self.column("text"))) >> np.uint64(1)).astype(np.int64)

    @property
    def documents(self) -> np.ndarray | None:
        """The document number of each sentence: int64 (sentence,); None if the corpus has none.

        A part keeps the numbers of its corpus. Sentences of a document are consecutive; for gaps, see `stretches`.
        """
        if "document" not in self.columns:
            return None
        numbers = self._stored.dataset.data.column("document").to_numpy()
        return numbers if self._rows is None else numbers[self._rows]

    @property
    def document_ids(self) -> np.ndarray:
        """A number for each sentence's document, derived from its sentences in this part: int64 (sentence,).

        Raises:
            UserError: The corpus has no documents.
        """
        found = document_hashes(hashes(self.column("text")), self.require_documents())
        return (found >> np.uint64(1)).astype(np.int64)

    @property
    def stretches(self) -> np.ndarray:
        """A number for each sentence's stretch of running text: int64 (sentence,), from 0.

        A stretch is a run of consecutive sentences of one document: all of it, unless this part lacks some sentences.

        Raises:
            UserError: The corpus has no documents.
        """
        return stretches(self.require_documents(), self.ids)

    def require_documents(self, reader: str = "This") -> np.ndarray:
        """Return `documents`, or raise a UserError that says that `reader` needs them."""
        if (documents := self.documents) is None:
            raise UserError(
                f"{reader} needs documents: consecutive sentences. The corpus {self.name} has none.\n"
                "Read a text file with blank lines between documents, or CoNLL-U with # newdoc, as documents "
                "(--documents, in a plan documents = true); for a table name their column (--document-column NAME)."
            )
        return documents

    def _other_columns(self, rows: np.ndarray) -> Iterator[list[Any]]:
        """The values of all columns except text and document, for each of the sentences at `rows`."""
        columns = sorted(self.columns - {"text", "document"})  # numbers depend on the order of documents
        if not columns:
            yield from ([] for _ in rows)
            return
        for part in self._batches(rows, 1024, columns):
            yield from (list(values) for values in zip(*(part[name] for name in columns), strict=True))

    @property
    def dataset(self) -> Dataset:
        """The sentences as a Hugging Face dataset."""
        whole = self._stored.dataset
        return whole if self._rows is None else whole.select(self._rows)

    def column(self, name: str, batch_size: int = 1024) -> Iterator[Any]:
        """Stream one column, sentence by sentence.

        Raises:
            UserError: The corpus does not have that column.
        """
        self.require(name)
        for part in self._batches(np.arange(len(self)), batch_size, [name]):
            yield from part[name]

    def require(self, *columns: str) -> None:
        """Raise a UserError with advice unless the corpus has these columns."""
        if missing := [column for column in columns if column not in self.columns]:
            raise UserError(
                f"The corpus {self.name} has no column {', '.join(missing)}; it has "
                f"{', '.join(sorted(self.columns))}.\n"
                "`grammar` has every column; treebanks have words and heads, parallel corpora the translation."
            )

    @property
    def word_counts(self) -> np.ndarray:
        """Number of words in each sentence (words of the running text if it has no `words`): int64 (sentence,)."""
        has_words = "words" in self.columns
        values = self.column("words" if has_words else "text")
        return np.fromiter((len(v if has_words else running_words(v)) for v in values), dtype=np.int64, count=len(self))

    def encode(self, tokenizer: PreTrainedTokenizerBase, side: Side = "text", max_length: int = 512) -> Encoded:
        """Token ids of every sentence, with the word of each token.

        The tokens are those of the running text. On the side `"text"`, if the corpus has words, word ids refer to them;
        see `SubwordAligner`. Sentences above `max_length` tokens are truncated and counted (`num_truncated`).

        Raises:
            UserError: The corpus has no translation, `max_length` is below 1, or the conversations were rendered by
                another chat template.
        """
        if max_length < 1:
            raise UserError(f"max_length must be at least 1. Got {max_length}.")
        self.require(side)
        of_words = side == "text" and "words" in self.columns
        columns = [side, WORD_STARTS] if of_words else [side]
        parts = self._batches(np.arange(len(self)), 2048, columns)
        batches = ((part[side], part[WORD_STARTS] if of_words else None) for part in parts)
        key = f"{self.digest} {' '.join(columns)}"
        rendered = side == "text" and RENDERED in self.columns
        if rendered and len(self) and self[0].rendered != template_digest(tokenizer):
            raise UserError(
                f"The conversations of {self.name} were rendered by the chat template of another model. Measure models "
                "with different templates one by one."
            )
        target = side == "translation"
        return encode(batches, self.ids, tokenizer, key=key, target=target, max_length=max_length, rendered=rendered)

    def _batches(self, rows: np.ndarray, size: int, columns: Sequence[str] | None = None) -> Iterator[dict[str, list]]:
        """Columns, and the ids as `id`, of the sentences at `rows`, `size` at a time."""
        dataset = self._stored.dataset if columns is None else self._stored.dataset.select_columns(list(columns))
        for start in range(0, len(rows), size):
            ids = self.ids[rows[start : start + size]] if self._rows is not None else rows[start : start + size]
            yield {**dataset[as_slice(ids)], "id": ids.tolist()}


def content_ids(texts: Iterable[str], rest: Rest) -> np.ndarray:
    """int64 (sentence,): a hash of the text and of the sentence's index among those with the same text.

    Sentences with the same text are numbered by a hash of their other columns: their translations and trees. Sentences
    equal in all columns are interchangeable.

    Sentences that differ only in case, spacing and compatibility forms share a bootstrap block. `block_of` depends only
    on the id, so ids for a repeat are drawn until one falls into the block of the first. `rest` returns the other
    columns of the sentences at given rows, as plain values; it is called for repeated texts only.
    """
    own, alike = hashes(each for text in texts for each in (text, normalised(text))).reshape(-1, 2).T.copy()
    number = np.zeros(len(own), dtype=np.int64)
    _, of_text, copies = np.unique(own, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(copies[of_text] > 1)
    if len(repeated):
        others = hashes(json.dumps(each, sort_keys=True) for each in rest(repeated))
        order = np.lexsort((others, own[repeated]))
        ordered = own[repeated][order]
        number[repeated[order]] = np.arange(len(order)) - np.searchsorted(ordered, ordered, side="left")
    return _in_blocks(own.view(np.int64), number, alike)


def _in_blocks(own: np.ndarray, number: np.ndarray, alike: np.ndarray) -> np.ndarray:
    """Ids of sentences whose texts have these hashes; sentences with equal `alike` get ids of one block."""
    ids = _ids(own, number)
    _, of_group, sizes = np.unique(alike, return_inverse=True, return_counts=True)
    several = np.flatnonzero(sizes[of_group] > 1)
    if len(several) == 0:
        return ids
    # The first of a group keeps its id, because it would also be in the corpus without repeats.
    ordered = several[np.lexsort((own[several], number[several], of_group[several]))]
    starts = np.concatenate([[True], of_group[ordered][1:] != of_group[ordered][:-1]])
    wanted = block_of(ids[ordered[starts]])[starts.cumsum() - 1]
    rows, attempt = ordered, 0
    while (wrong := block_of(ids[rows]) != wanted).any():
        rows, wanted, attempt = rows[wrong], wanted[wrong], attempt + 1
        ids[rows] = _ids(own[rows], number[rows], np.full(len(rows), attempt))
    return ids


def _ids(*columns: np.ndarray) -> np.ndarray:
    return (hash64_array(("sentence",), *columns) >> np.uint64(1)).astype(np.int64)


def labelled_rows(corpus: AbstractSentences, labels: Sequence[str] | str | Path) -> tuple[Iterator[Row], list[str]]:
    """The corpus's rows, each with its label, and the names of their columns; `labels` as in `Corpus.with_labels`."""
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
    """The corpus's rows with new values in the column `name`, and the names of their columns."""
    corpus.require(name)
    if len(values) != len(corpus):
        raise UserError(f"A column of {corpus.name} must have {len(corpus):,} values. Got {len(values):,}.")
    columns = sorted(corpus.dataset.column_names)
    moved = {WORD_STARTS: None} if name in ("text", "words") and WORD_STARTS in columns else {}
    return ({**row, name: value, **moved} for row, value in zip(_rows(corpus, columns), values, strict=True)), columns


def joined_rows(first: AbstractSentences, test: AbstractSentences) -> tuple[Iterator[Row], list[str]]:
    """The rows of both corpora with their `part`, and the names of the columns that both have, without documents."""
    shared = sorted({*first.dataset.column_names} & {*test.dataset.column_names} - {"document", "part"})
    rows = (
        {**row, "part": part} for part, corpus in (("train", first), ("test", test)) for row in _rows(corpus, shared)
    )
    return rows, [*shared, "part"]


def _rows(corpus: AbstractSentences, columns: Sequence[str]) -> Iterator[Row]:
    for part in corpus._batches(np.arange(len(corpus)), 1024, columns):
        for values in zip(*(part[column] for column in columns), strict=True):
            yield dict(zip(columns, values, strict=True))


_NOT_TAGS = WHOLE_COLUMNS | {"id", "words", "head", "lemma"}
_FIRST = 1000  # number of sentences searched for brackets


def tag_columns(corpus: AbstractSentences) -> list[str]:
    """The corpus's per-word columns that hold tags: not trees, lemmas or coreference brackets."""
    if "words" not in corpus.columns:
        return []
    found = corpus.columns - _NOT_TAGS
    return sorted(found - {ENTITY} if ENTITY in found and _has_brackets(corpus) else found)


def _has_brackets(corpus: AbstractSentences) -> bool:
    values = (value for words in islice(corpus.column(ENTITY), _FIRST) for value in words)
    return any(value is not None and value.startswith("(") for value in values)
