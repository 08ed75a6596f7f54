"""`Corpus`: sentences with their annotation, on Arrow, of any size."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from transformers import PreTrainedTokenizerBase

from infoflow.foundation import UserError, current_display, digest, file_digest

from ._columns import NAMED_COLUMNS, Row
from ._conllu import CONLLU_COLUMNS, read_conllu
from ._content_ids import content_ids
from ._encoded import Encoded, encode
from ._hf_dataset import one_split, read_dataset
from ._lines import check_readable, file_state, unchanged
from ._memory import is_pair, read_frame, read_sentences
from ._plain_text import read_pair, read_table, read_text
from ._sentence import Sentence
from ._split import SplitRule, check_rule, check_shares, kept_assignment
from ._store import Stored, as_slice, store
from ._tables import read_columns
from ._tagged import read_tagged, tagged_columns

Side = Literal["text", "translation"]

_READER_VERSION = 1  # raise when a reader gives other rows for the same file


class Corpus:
    """Sentences, memory-mapped from Arrow and never whole in memory.

    Make one with `from_text`, `from_parallel`, `from_conllu`, `from_tagged`, `from_dataset`, or `load_corpus`. A part
    of a corpus (`select`, `filter_words`, `split`) is again a corpus and keeps the ids of its sentences.
    """

    def __init__(self, stored: Stored, name: str) -> None:
        # A file's name need not be UTF-8, and tables and pages are.
        self.name = name.encode("utf-8", "replace").decode("utf-8")
        self.digest = stored.digest
        """Sixteen hex digits of the content: equal for equal sentences in equal order."""
        self._stored = stored
        self._rows: np.ndarray | None = None  # None: all
        self._content_ids: np.ndarray | None = None  # None: not asked for yet
        if stored.dropped:
            current_display().note(f"{name}: {stored.dropped} lines without a sentence were left out.")

    # -- readers ------------------------------------------------------------------------------------------------------

    @classmethod
    def from_text(cls, path: str | Path, name: str | None = None) -> "Corpus":
        """One sentence per line, plain or .gz; blank lines are left out.

        Raises:
            UserError: The file cannot be read, is not UTF-8, or holds no sentence.
        """
        path = Path(path)
        return cls._from_files([path], read_text(path), ("text",), {"reader": "text"}, name)

    @classmethod
    def from_parallel(
        cls,
        source: str | Path,
        target: str | Path | None = None,
        columns: tuple[int, int] = (0, 1),
        name: str | None = None,
    ) -> "Corpus":
        """Sentence pairs: two files aligned by line, or one tab-separated file of which `columns` are taken.

        A pair with a blank side is left out.

        Raises:
            UserError: As `from_text`; the files have unequally many lines; a line lacks a column.
        """
        source = Path(source)
        facts: dict[str, Any] = {"reader": "parallel", "columns": columns}
        if target is None:
            return cls._from_files([source], read_table(source, columns), ("text", "translation"), facts, name)
        target = Path(target)
        return cls._from_files([source, target], read_pair(source, target), ("text", "translation"), facts, name)

    @classmethod
    def from_conllu(cls, path: str | Path, name: str | None = None, misc: Sequence[str] = ()) -> "Corpus":
        """A CoNLL-U treebank: words, upos, head (from 0, −1 the root), deprel, and the tags `lemma` and `xpos`.

        `misc` names keys of the MISC field that become columns in lower case: `("Entity",)` gives `entity`, the
        coreference brackets of CorefUD.

        Raises:
            UserError: As `from_text`; a line is malformed; the heads of a sentence are not a tree.
        """
        path = Path(path)
        facts: dict[str, Any] = {"reader": "conllu", **({"misc": list(misc)} if misc else {})}
        columns = (*CONLLU_COLUMNS, *(key.lower() for key in misc))
        return cls._from_files([path], read_conllu(path, misc), columns, facts, name)

    @classmethod
    def from_tagged(cls, path: str | Path, tags: Sequence[str] = ("tag",), name: str | None = None) -> "Corpus":
        """`word<TAB>tag` lines, a blank line between sentences; `tags` names the tag columns.

        A column named `ccg` brings `ccg_left` and `ccg_right` (see `split_category`).

        Raises:
            UserError: As `from_text`; a line has another number of fields.
        """
        path = Path(path)
        facts = {"reader": "tagged", "tags": list(tags)}
        return cls._from_files([path], read_tagged(path, tags), tagged_columns(tags), facts, name)

    @classmethod
    def from_table(
        cls, path: str | Path, text: str | None = None, translation: str | None = None, name: str | None = None
    ) -> "Corpus":
        """Sentences of a named column of a table: .csv, .tsv with a header, .jsonl, .json, .parquet.

        `"translation.en"` reaches into an object. A row with a blank or missing cell is left out.

        Raises:
            UserError: As `from_text`; a column is not named or not there, or holds something else than text.
        """
        path = Path(path)
        columns = ("text", "translation") if translation else ("text",)
        facts = {"reader": "table", "kind": path.suffix.lower(), "columns": [text, translation]}
        return cls._from_files([path], read_columns(path, text, translation), columns, facts, name)

    @classmethod
    def from_sentences(cls, sentences: Sequence[Any], name: str = "sentences") -> "Corpus":
        """A list of sentences, or of pairs of a sentence and its translation.

        Raises:
            UserError: The list is empty, or an entry is neither, or of another kind than the first.
        """
        parallel = len(sentences) > 0 and is_pair(sentences[0])
        columns = ("text", "translation") if parallel else ("text",)
        return cls(store(read_sentences(sentences, parallel, name), columns, name), name)

    @classmethod
    def from_frame(
        cls, frame: Any, text: str = "text", translation: str | None = None, name: str = "frame"
    ) -> "Corpus":
        """Sentences of a named column of a pandas or polars frame.

        Raises:
            UserError: A column is not there, or holds something else than text.
        """
        columns = ("text", "translation") if translation else ("text",)
        return cls(store(read_frame(frame, text, translation), columns, name), name)

    @classmethod
    def from_dataset(
        cls,
        dataset: Dataset | IterableDataset | DatasetDict | IterableDatasetDict,
        text: str | None = "text",
        translation: str | None = None,
        words: str | None = None,
        tags: Sequence[str] = (),
        name: str = "dataset",
    ) -> "Corpus":
        """One split of a Hugging Face dataset; arguments name its columns (`"translation.en"` reaches into a dict).

        Class labels become their names. With `text=None` the text is the words joined by spaces.

        Raises:
            UserError: A column is absent, a column of words or tags holds no lists, or `dataset` still has splits.
        """
        named = {"text": text, "translation": translation, "words": words}
        columns = {column: source for column, source in named.items() if source} | {tag: tag for tag in tags}
        dataset = one_split(dataset, columns)
        fingerprint = getattr(dataset, "_fingerprint", None) if isinstance(dataset, Dataset) else None
        key = digest([_READER_VERSION, "dataset 2", fingerprint, columns]) if fingerprint else None
        return cls(store(read_dataset(dataset, columns), tuple(dict.fromkeys(["text", *columns])), name, key), name)

    @classmethod
    def _from_files(
        cls,
        paths: Sequence[Path],
        rows: Iterator[Row | None],
        columns: Sequence[str],
        facts: dict[str, Any],
        name: str | None,
    ) -> "Corpus":
        for path in paths:
            check_readable(path)
        states = [file_state(path) for path in paths]
        first = list(islice(rows, 1))  # what is no text is told before a large file is hashed
        name = name or "-".join(dict.fromkeys(path.name.removesuffix(".gz") for path in paths))
        key = digest([_READER_VERSION, facts, [file_digest(path) for path in paths]])
        return cls(store(unchanged(chain(first, rows), paths, states), columns, name, key), name)

    # -- sentences ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._stored.dataset) if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, index: int | np.integer) -> Sentence: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sentence]: ...
    def __getitem__(self, index: int | np.integer | slice) -> Sentence | list[Sentence]:
        if isinstance(index, slice):
            rows = np.arange(len(self))[index]
            return [sentence for part in self._batches(rows, 1024) for sentence in _sentences(part)]
        if not -len(self) <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return next(iter(self[slice(int(index) % len(self), int(index) % len(self) + 1)]))

    def __iter__(self) -> Iterator[Sentence]:
        for part in self._batches(np.arange(len(self)), 1024):
            yield from _sentences(part)

    def __repr__(self) -> str:
        return f"Corpus({self.name!r}, {len(self):,} sentences, columns: {', '.join(sorted(self.columns))})"

    @property
    def columns(self) -> set[str]:
        """What is known of each sentence: `text`, and for example `translation`, `words`, `head`, `ccg`."""
        return set(self._stored.dataset.column_names)

    @property
    def ids(self) -> np.ndarray:
        """The row of each sentence in the original corpus: int64 (sentence,)."""
        return np.arange(len(self), dtype=np.int64) if self._rows is None else self._rows

    @property
    def content_ids(self) -> np.ndarray:
        """A number of each sentence that its text decides: int64 (sentence,).

        Measures choose sentences and put them into bootstrap blocks by it, so that the order of lines does not matter.
        Copies of a sentence have numbers of their own; those of a part are counted in that part.
        """
        if self._content_ids is None:
            self._content_ids = content_ids(self.column("text"), self._beside_text)
        return self._content_ids

    def _beside_text(self, rows: np.ndarray) -> Iterator[list[Any]]:
        """Everything but the text of the sentences at `rows`."""
        columns = sorted(self.columns - {"text"})
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
        """Raise a UserError that says what to do, unless the corpus has these columns."""
        if missing := [column for column in columns if column not in self.columns]:
            raise UserError(
                f"The corpus {self.name} has no column {', '.join(missing)}; it has "
                f"{', '.join(sorted(self.columns))}.\n"
                "`grammar` has every column; treebanks bring words and heads, parallel corpora the translation."
            )

    # -- parts --------------------------------------------------------------------------------------------------------

    def select(self, rows: Sequence[int] | np.ndarray, name: str | None = None) -> "Corpus":
        """The sentences at these rows (of this corpus), in that order.

        Raises:
            UserError: No row, or one outside 0..len − 1.
        """
        rows = np.asarray(rows)
        if rows.dtype == bool and rows.shape == (len(self),):
            rows = np.flatnonzero(rows)
        if len(rows) == 0:
            raise UserError(f"No sentence of {self.name} was selected.\nLoosen the condition, or use a larger corpus.")
        if rows.min() < 0 or rows.max() >= len(self):
            raise UserError(f"Rows of {self.name} lie in 0..{len(self) - 1}. Got {rows.min()}..{rows.max()}.")
        part = object.__new__(Corpus)
        part.name = name or self.name
        part._stored = self._stored
        part._rows = self.ids[rows.astype(np.int64)]
        part._content_ids = None
        part.digest = digest([self._stored.digest, hashlib.sha256(part._rows.tobytes()).hexdigest()])
        return part

    def filter_words(self, minimum: int = 1, maximum: int | None = None) -> "Corpus":
        """The sentences of `minimum` to `maximum` words (white-space words where the corpus has no words)."""
        return self.select((self.word_counts >= minimum) & (self.word_counts <= (maximum or np.inf)))

    @property
    def word_counts(self) -> np.ndarray:
        """Words of each sentence (white-space words where the corpus has no words): int64 (sentence,)."""
        has_words = "words" in self.columns
        values = self.column("words" if has_words else "text")
        return np.fromiter((len(v if has_words else v.split()) for v in values), dtype=np.int64, count=len(self))

    def split(
        self, seed: int = 0, validation: float = 0.02, test: float = 0.02, rule: SplitRule = "near-duplicates"
    ) -> "CorpusSplit":
        """Train, validation and test parts; `validation` and `test` are shares of the distinct source sentences.

        The part that a sentence belongs to is a function of (seed, its text without regard to case, spacing and
        compatibility forms), so all translations of a source lie in one part, and a test sentence stays in its part
        when the corpus grows. What would leak is then left out, of training before validation and of both before test,
        which is never thinned out:

        | rule              | no two parts share                                                                 |
        |-------------------|------------------------------------------------------------------------------------|
        | `near-duplicates` | a source, a target, or near duplicates of either: equal words, or one word apart   |
        | `both-sides`      | a source or a target                                                               |
        | `source`          | a source                                                                           |

        "One word apart" is one word substituted, inserted or deleted where both sentences have at least four words,
        punctuation not counted. Of 147,896 training pairs of `tatoeba-en-fr` with at most ten words, a test share of
        0.1 and a validation share of 0.02 leave 124,545, instead of 145,371 for `both-sides`. Where near duplicates are
        so many that less than half of the training or of the validation part would be left, the next weaker rule is
        used; `rule` of the result is the one that was, and a note says so.

        Raises:
            UserError: Shares outside [0, 1), an unknown rule, or too few sentences for a part that was asked for.
        """
        check_shares(validation, test)
        check_rule(rule)
        columns = [partial(self.column, name) for name in ("text", "translation") if name in self.columns]
        assigned = kept_assignment(columns, seed, validation, test, rule, self.name, self.digest)
        shares = {"train": 1.0, "validation": validation, "test": test}
        parts: dict[str, Corpus | None] = {}
        for number, (part, share) in enumerate(shares.items()):
            rows = np.flatnonzero(assigned.parts == number)
            if share > 0 and len(rows) == 0:
                raise UserError(
                    f"{self.name} has too few sentences ({len(self)}) for a {part} part.\nUse a larger share."
                )
            parts[part] = self.select(rows, f"{self.name}[{part}]") if share > 0 else None
        train = parts["train"]
        assert train is not None
        return CorpusSplit(
            train=train,
            validation=parts["validation"],
            test=parts["test"],
            rule=assigned.rule,
            left_out=assigned.left_out,
        )

    # -- tokens -------------------------------------------------------------------------------------------------------

    def encode(self, tokenizer: PreTrainedTokenizerBase, side: Side = "text", max_length: int = 512) -> Encoded:
        """Token ids of every sentence, with the word of each token.

        On the side `"text"`, where the corpus has words, they go to the tokenizer one by one, and word ids are those
        words; otherwise see `SubwordAligner`. Longer sentences are cut and counted (`num_truncated`).

        Raises:
            UserError: The corpus has no translation, or `max_length` is below 1.
        """
        if max_length < 1:
            raise UserError(f"max_length must be at least 1. Got {max_length}.")
        column = "words" if side == "text" and "words" in self.columns else side
        self.require(column)
        batches = (part[column] for part in self._batches(np.arange(len(self)), 2048, [column]))
        key = f"{self.digest} {column}"
        return encode(batches, self.ids, tokenizer, key=key, target=side == "translation", max_length=max_length)

    def _batches(self, rows: np.ndarray, size: int, columns: Sequence[str] | None = None) -> Iterator[dict[str, list]]:
        """Columns, and the ids as `id`, of the sentences at `rows`, `size` at a time."""
        dataset = self._stored.dataset if columns is None else self._stored.dataset.select_columns(list(columns))
        for start in range(0, len(rows), size):
            ids = self.ids[rows[start : start + size]] if self._rows is not None else rows[start : start + size]
            yield {**dataset[as_slice(ids)], "id": ids.tolist()}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CorpusSplit:
    """Parts of a corpus that share no source sentence, nor what `rule` forbids; a part whose share is 0 is None."""

    train: Corpus
    validation: Corpus | None
    test: Corpus | None
    rule: SplitRule  # the one that was used: a weaker one than asked for where that would leave too little
    left_out: dict[str, dict[str, int]]  # rows that are in no part: the part they belonged to, why, how many


def _sentences(columns: dict[str, list]) -> Iterator[Sentence]:
    named = [name for name in columns if name in NAMED_COLUMNS or name == "id"]
    tags = [name for name in columns if name not in named]
    for i in range(len(columns["id"])):
        yield Sentence(**{name: columns[name][i] for name in named}, tags={name: columns[name][i] for name in tags})
