"""`Corpus`: sentences with their annotation, on Arrow, of any size."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, final

import numpy as np

from infoflow._transformers import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from infoflow.foundation import UserError, digest, file_digest

from ._abstract_sentences import AbstractSentences, joined_rows, labelled_rows, replaced_rows
from ._columns import Row
from ._conllu import CONLLU_COLUMNS, read_conllu
from ._documents import number_documents
from ._inspect import as_it_is, check_columns, check_pairs, check_sentences, plausible
from ._lines import check_readable, file_state, unchanged
from ._memory import dataset_holds, frame_holds, is_pair, one_split, read_dataset, read_frame, read_sentences
from ._plain_text import (
    Lines,
    cut_facts,
    cut_lines,
    read_documents,
    read_labelled,
    read_minimal_pairs,
    read_pair,
    read_table,
    read_text,
)
from ._split import SplitRule, split_rows
from ._store import store
from ._tables import nested_starts, read_columns, table_holds
from ._tagged import QUESTION_COLUMNS, read_squad, read_tagged, read_word_answers, tagged_columns

_READER_VERSION = 2  # increase when a reader returns different rows for the same file


@final
class Corpus(AbstractSentences):
    """Sentences, memory-mapped from Arrow and never read into memory as a whole.

    Create one with `from_text`, `from_parallel`, `from_conllu`, `from_tagged`, `from_dataset`, or `load_corpus`. A part
    of a corpus (`select`, `filter_words`, `split`) is also a corpus and keeps the ids and documents of its sentences.
    """

    @classmethod
    def from_text(
        cls, path: str | Path, name: str | None = None, documents: bool = False, lines: Lines = "sentences"
    ) -> "Corpus":
        """Read a text file, plain or .gz, with one sentence per line; blank lines are dropped, or separate `documents`.

        If `lines` are paragraphs, each is split into its sentences (see `sentences_of`). A file whose first hundred
        lines do not look like sentences is refused; put `as-is:` before its path to read it anyway.

        Raises:
            UserError: The file cannot be read, is not UTF-8, or holds no sentence.
        """
        path, as_is = as_it_is(path)
        if not as_is:
            check_sentences(path, str(path))
        facts = {"reader": "text", **_given(documents=documents), **cut_facts(lines)}
        rows = cut_lines(read_documents(path) if documents else read_text(path), lines)
        return cls._from_files([path], rows, ("text", "document") if documents else ("text",), facts, name)

    @classmethod
    def from_parallel(
        cls,
        source: str | Path,
        target: str | Path | None = None,
        columns: tuple[int, int] = (1, 2),
        name: str | None = None,
    ) -> "Corpus":
        """Read sentence pairs from two files aligned by line, or from two `columns` (from 1) of a tab-separated file.

        Pairs with a blank side are dropped. For `as-is:` before the first path, see `from_text`.

        Raises:
            UserError: As in `from_text`; the files differ in their number of lines; a line lacks a column.
        """
        source, as_is = as_it_is(source)
        facts: dict[str, Any] = {"reader": "parallel", "columns": columns}
        if target is None:
            if not as_is:
                check_pairs(source, str(source), columns)
            return cls._from_files([source], read_table(source, columns), ("text", "translation"), facts, name)
        target = Path(target)
        for path in (source, target) if not as_is else ():
            check_sentences(path, f"{source},{target}")
        return cls._from_files([source, target], read_pair(source, target), ("text", "translation"), facts, name)

    @classmethod
    def from_conllu(
        cls,
        path: str | Path,
        name: str | None = None,
        misc: Sequence[str] = (),
        documents: bool = False,
        feats: Sequence[str] = (),
    ) -> "Corpus":
        """Read a CoNLL-U treebank: words, upos, head (from 0; −1: the root), deprel, and the tags `lemma` and `xpos`.

        `misc` lists keys of the MISC field that become columns in lower case: `("Entity",)` gives `entity`, CorefUD's
        coreference brackets. `feats` does the same for features: `("Number",)` gives `number`. With `documents` each
        sentence has its document, started by `# newdoc`.

        Raises:
            UserError: As in `from_text`; a line is malformed; the heads of a sentence are not a tree.
        """
        path = Path(path)
        facts = {"reader": "conllu", **_given(misc=list(misc), documents=documents, feats=list(feats))}
        named = [key.lower() for key in (*misc, *feats)]
        columns = (*CONLLU_COLUMNS, *named, *(("document",) if documents else ()))
        if clash := [column for column in columns if columns.count(column) > 1]:
            raise UserError(f"Two columns would be called {clash[0]}. Leave it out of misc or feats.")
        return cls._from_files([path], read_conllu(path, misc, documents, feats), columns, facts, name)

    @classmethod
    def from_tagged(
        cls,
        path: str | Path,
        tags: Sequence[str] = ("tag",),
        name: str | None = None,
        blanks: bool = False,
        word: int = 1,
    ) -> "Corpus":
        """Read `word<TAB>tag` lines with a blank line between sentences; `tags` names the tag columns.

        A column named `ccg` adds `ccg_left` and `ccg_right` (see `split_category`). With `blanks`, spaces may replace
        tabs, and lines with -DOCSTART- are skipped, as in CoNLL-2003. `word` is the column of the words, from 1;
        columns before it are dropped.

        Such files do not record spaces. One is assumed between all words, except next to characters of scripts without
        spaces (Chinese, Japanese, Thai, ...).

        Raises:
            UserError: As in `from_text`; a line has a different number of fields; the words are numbers or labels.
        """
        path = Path(path)
        facts = {"reader": "tagged", "tags": list(tags), **_given(blanks=blanks, word=word if word != 1 else None)}
        return cls._from_files([path], read_tagged(path, tags, blanks, word), tagged_columns(tags), facts, name)

    @classmethod
    def from_labelled(
        cls, path: str | Path, columns: tuple[int, int] | tuple[int, int, int] = (1, 2), name: str | None = None
    ) -> "Corpus":
        """Read `label<TAB>sentence` or `label<TAB>first<TAB>second` lines; `label` is the class of each row.

        Args:
            path: A tab-separated file without a header, plain or .gz.
            columns: Columns of the label, the sentence, and optionally the second sentence of a pair, from 1; negative
                ones count from the last.
            name: Name of the corpus.

        Raises:
            UserError: As in `from_text`; a line lacks a column; there is a header, or labels in place of sentences.
        """
        path = Path(path)
        check_columns(path, columns, columns[1:])
        facts: dict[str, Any] = {"reader": "labelled", "columns": columns}
        named = ("text", "label", *(("second",) if len(columns) > 2 else ()))
        return cls._from_files([path], read_labelled(path, columns), named, facts, name)

    @classmethod
    def from_minimal_pairs(
        cls, path: str | Path, columns: tuple[int, int] | tuple[int, int, int] = (-2, -1, -3), name: str | None = None
    ) -> "Corpus":
        """Read tab-separated minimal pairs: `text` is the acceptable sentence, `bad` the other, `label` the phenomenon.

        BLiMP's own files are tables: `Corpus.from_table(path, text="sentence_good", bad="sentence_bad", label="UID")`.

        Args:
            path: A file without a header, plain or .gz.
            columns: Columns of the good and the bad sentence and optionally the phenomenon, from 1; negative ones count
                from the last.
            name: Name of the corpus.

        Raises:
            UserError: As in `from_text`; a line lacks a column; there is a header, or labels in place of sentences.
        """
        path = Path(path)
        check_columns(path, columns, columns[:2])
        facts: dict[str, Any] = {"reader": "minimal pairs", "columns": columns}
        named = ("text", "bad", "label")[: len(columns)]
        return cls._from_files([path], read_minimal_pairs(path, columns), named, facts, name)

    @classmethod
    def from_squad(cls, path: str | Path, name: str | None = None) -> "Corpus":
        """Read questions about passages in SQuAD's format (1.1 or 2.0): `text` is the passage, one row per `question`.

        `answers` are spans of the passage, `answer_starts` their start characters; both are empty if the passage has no
        answer (`is_impossible`). The passage is unchanged, white space included. XQuAD and COVID-QA use this format
        too. For a hub data set with SQuAD's columns, use `Corpus.from_dataset(squad, text="context",
        question="question", answers="answers.text", answer_starts="answers.answer_start")`.

        Args:
            path: A .json file, plain or .gz.
            name: Name of the corpus.

        Raises:
            UserError: As in `from_text`; the file is not JSON, or not in this format.
        """
        path = Path(path)
        return cls._from_files([path], read_squad(path), QUESTION_COLUMNS, {"reader": "squad"}, name)

    @classmethod
    def from_word_answers(cls, sentences: str | Path, questions: str | Path, name: str | None = None) -> "Corpus":
        """Read questions about single sentences, answered by word ranges, as in QAMR; columns as in `from_squad`.

        Args:
            sentences: Lines `id<TAB>sentence`, with words separated by spaces.
            questions: Lines `line<TAB>question<TAB>ranges`: the line number of the sentence, and the answers of several
                people as ranges of words `first-last`, separated by spaces. Lines and words are counted from 0.
            name: Name of the corpus.

        Raises:
            UserError: As in `from_text`; a line or a word does not exist.
        """
        paths = [Path(sentences), Path(questions)]
        return cls._from_files(paths, read_word_answers(*paths), QUESTION_COLUMNS, {"reader": "word answers"}, name)

    @classmethod
    def from_table(
        cls,
        path: str | Path,
        text: str | None = None,
        translation: str | None = None,
        name: str | None = None,
        document: str | None = None,
        lines: Lines = "sentences",
        label: str | None = None,
        bad: str | None = None,
        second: str | None = None,
        question: str | None = None,
        choices: str | None = None,
        answers: str | None = None,
        answer_starts: str | None = None,
        references: str | None = None,
    ) -> "Corpus":
        """Read the sentences in a named column of a table: .csv, .tsv with a header, .jsonl, .json, .parquet.

        `"translation.en"` selects a nested value. Rows with a blank or missing cell are dropped. The column `document`
        names the document of each row; its rows must be consecutive. For `lines`, and for `as-is:` before a path
        whose column of sentences holds numbers or labels, see `from_text`. `label` is the column of each sentence's
        class, `bad` the unacceptable sentence of a minimal pair (see `from_minimal_pairs`), `second` the second text of
        a pair, `question` the question about the text (which may then be a list, the turns of a dialogue), `choices`
        the answer choices, a list of texts.

        `answers` and `answer_starts` are the columns of answers in the text and of their first characters (lists; see
        `from_squad`; for `answers.text` the default is `answers.answer_start`, if the table has it), `references` the
        column of further references. With references, the text may be a list of sentences, or of facts (`subject |
        relation | object && …`), and the translation a list whose first entry counts; the others are further references
        if both arguments name the same column:

        | set       | columns                                                             |
        |-----------|---------------------------------------------------------------------|
        | AESLC     | `text="body", translation="subject", references="references"`       |
        | SciTLDR   | `text="source", translation="target", references="target"`          |
        | WebNLG    | `text="triples", translation="texts", references="texts"`           |
        | DialogSum | `text="dialogue", translation="summary"`                            |

        Raises:
            UserError: As in `from_text`; `text` names no column; a column is missing, or holds something other than
                text.
        """
        path, as_is = as_it_is(path)
        answer_starts = answer_starts or nested_starts(answers, partial(table_holds, path))
        named = [text, translation, *([document] if document else [])]
        extra = _given(label=label, bad=bad, second=second, question=question, choices=choices)
        extra |= _given(answers=answers, answer_starts=answer_starts, references=references)
        facts = {"reader": "table", "kind": path.suffix.lower(), "columns": named, **cut_facts(lines), **extra}
        read = read_columns(path, text, translation, document, **extra)
        if not as_is:
            read = plausible(read, path, _given(text=text, translation=translation))
        rows, columns = _shaped(read, translation, document, lines, str(path), extra=extra)
        return cls._from_files([path], rows, columns, facts, name)

    @classmethod
    def from_sentences(
        cls, sentences: Sequence[Any], name: str = "sentences", documents: Sequence[Any] | np.ndarray | None = None
    ) -> "Corpus":
        """A corpus from a list of sentences, or of (sentence, translation) pairs; `documents` lists their documents.

        Raises:
            UserError: The list is empty, an entry is neither a sentence nor a pair, or sentences and pairs are mixed.
        """
        parallel = len(sentences) > 0 and is_pair(sentences[0])
        named = None if documents is None else "documents"
        rows = read_sentences(sentences, parallel, name, documents)
        rows, columns = _shaped(rows, "translation" if parallel else None, named, "sentences", name)
        return cls(store(rows, columns, name), name)

    @classmethod
    def from_rows(cls, rows: Iterable[Row], columns: Sequence[str], name: str = "rows") -> "Corpus":
        """A corpus from rows, each with `text` and a value for each of `columns`.

        Columns other than a corpus's standard ones hold a tag for each word.

        Raises:
            UserError: There are no rows.
        """
        return cls(store(rows, columns, name), name)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        text: str = "text",
        translation: str | None = None,
        name: str = "frame",
        document: str | None = None,
        lines: Lines = "sentences",
        label: str | None = None,
        bad: str | None = None,
        second: str | None = None,
        question: str | None = None,
        choices: str | None = None,
        answers: str | None = None,
        answer_starts: str | None = None,
        references: str | None = None,
    ) -> "Corpus":
        """A corpus from a named column of a pandas or polars frame; other arguments as in `from_table`.

        Raises:
            UserError: A column is missing, or holds something other than text.
        """
        answer_starts = answer_starts or nested_starts(answers, partial(frame_holds, frame))
        extra = _given(label=label, bad=bad, second=second, question=question, choices=choices)
        extra |= _given(answers=answers, answer_starts=answer_starts, references=references)
        read = read_frame(frame, text, translation, document, **extra)
        rows, columns = _shaped(read, translation, document, lines, name, extra=extra)
        return cls(store(rows, columns, name), name)

    @classmethod
    def from_dataset(
        cls,
        dataset: Dataset | IterableDataset | DatasetDict | IterableDatasetDict,
        text: str | None = "text",
        translation: str | None = None,
        words: str | None = None,
        tags: Sequence[str] = (),
        name: str = "dataset",
        document: str | None = None,
        lines: Lines = "sentences",
        label: str | None = None,
        bad: str | None = None,
        second: str | None = None,
        question: str | None = None,
        choices: str | None = None,
        answers: str | None = None,
        answer_starts: str | None = None,
        references: str | None = None,
    ) -> "Corpus":
        """A corpus from one split of a Hugging Face dataset; arguments name its columns (`"translation.en"`: nested).

        Class labels become their names. With `text=None`, or if the text differs from the words, the text is the words
        joined as in `from_tagged`. For `document`, `lines`, `label` and the rest, see `from_table`.

        Raises:
            UserError: A column is absent, a column of words or tags holds no lists, or `dataset` still has splits.
        """
        named = {"text": text, "translation": translation, "words": words, "document": document}
        columns = {column: source for column, source in named.items() if source} | {tag: tag for tag in tags}
        columns |= _given(label=label, bad=bad, second=second, question=question, choices=choices)
        columns |= _given(answers=answers, answer_starts=answer_starts, references=references)
        dataset = one_split(dataset, columns)
        if not answer_starts and (starts := nested_starts(answers, partial(dataset_holds, dataset))):
            columns["answer_starts"] = starts
        fingerprint = getattr(dataset, "_fingerprint", None) if isinstance(dataset, Dataset) else None
        facts = [columns, cut_facts(lines)] if lines == "paragraphs" else [columns]
        key = digest([_READER_VERSION, "dataset 2", fingerprint, *facts]) if fingerprint else None
        rows = read_dataset(dataset, columns)
        rows = cut_lines(number_documents(rows, name) if document else rows, lines)
        return cls(store(rows, tuple(dict.fromkeys(["text", *columns])), name, key), name)

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
        first = list(islice(rows, 1))  # errors in the text are reported before a large file is hashed
        name = name or "-".join(dict.fromkeys(path.name.removesuffix(".gz") for path in paths))
        key = digest([_READER_VERSION, facts, [file_digest(path) for path in paths]])
        return cls(store(unchanged(chain(first, rows), paths, states), columns, name, key), name)

    def with_labels(self, labels: Sequence[str] | str | Path, name: str | None = None) -> "Corpus":
        """The same sentences with class labels: a list, or a file with one per line.

        Raises:
            UserError: The number of labels differs from the number of sentences, or the corpus has labels already.
        """
        rows, columns = labelled_rows(self, labels)
        return Corpus(store(rows, columns, name or self.name), name or self.name)

    def with_column(self, name: str, values: Sequence[Any]) -> "Corpus":
        """The same sentences with new values in an existing column, such as shuffled labels.

        Raises:
            UserError: There is no such column, or the number of values differs from the number of sentences.
        """
        rows, columns = replaced_rows(self, name, values)
        return Corpus(store(rows, columns, self.name), self.name)

    def with_test(self, test: "Corpus", name: str | None = None) -> "Corpus":
        """These sentences followed by those of `test`, marked by the column `part` (see `probing.build_task`).

        Columns that only one of the two has are dropped.
        """
        rows, columns = joined_rows(self, test)
        name = name or f"{self.name}+{test.name}"
        return Corpus(store(rows, columns, name), name)

    def select(self, rows: Sequence[int] | np.ndarray, name: str | None = None) -> "Corpus":
        """The sentences at these rows (of this corpus), in that order.

        Raises:
            UserError: There are no rows, or one is outside 0..len − 1.
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
        """The sentences of `minimum` to `maximum` words.

        If the corpus has no words, words are separated by white space, and each character of a script without spaces
        counts as one.
        """
        return self.select((self.word_counts >= minimum) & (self.word_counts <= (maximum or np.inf)))

    def split(
        self, seed: int = 0, validation: float = 0.02, test: float = 0.02, rule: SplitRule = "near-duplicates"
    ) -> "CorpusSplit":
        """Train, validation and test parts; `validation` and `test` are shares of the distinct source sentences.

        A sentence's part depends only on `seed` and its text (ignoring case, spacing and compatibility forms), so all
        translations of a source are in one part, and a test sentence stays in its part when the corpus grows. Then rows
        that would leak are left out, first from training, then from validation. The test part is never reduced.

        | rule              | no two parts share                                                                 |
        |-------------------|------------------------------------------------------------------------------------|
        | `near-duplicates` | a source, a target, or near duplicates of either: equal words, or one word apart   |
        | `both-sides`      | a source or a target                                                               |
        | `source`          | a source                                                                           |

        "One word apart" is one word substituted, inserted or deleted if both sentences have at least four words,
        without punctuation. For `tatoeba-en-fr` with at most ten words, a test share of 0.1 and a validation share of
        0.02, this rule keeps 124,545 of 147,896 training pairs; `both-sides` keeps 145,371. If near duplicates are so
        frequent that less than half of the training or validation part would be left, the next weaker rule is used.
        `rule` of the result says which rule was used, and a note reports it.

        If the corpus has documents, all sentences of a document are in one part, determined by `seed` and the text of
        the document. A document is left out only as a whole, if the rule forbids at least half of its sentences;
        otherwise frequent sentences ("Yes.") would be missing from all running text.

        Raises:
            UserError: A share is outside [0, 1), the rule is unknown, or there are too few sentences for a requested
                part.
        """
        rows, assigned = split_rows(self, seed, {"train": 1.0, "validation": validation, "test": test}, rule)
        parts = {name: None if at is None else self.select(at, f"{self.name}[{name}]") for name, at in rows.items()}
        train = parts["train"]
        assert train is not None
        return CorpusSplit(
            train=train,
            validation=parts["validation"],
            test=parts["test"],
            rule=assigned.rule,
            left_out=assigned.left_out,
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CorpusSplit:
    """Parts of a corpus that share no source sentence and nothing that `rule` forbids; a part of share 0 is None."""

    train: Corpus
    validation: Corpus | None
    test: Corpus | None
    rule: SplitRule  # a weaker rule than requested if that one would leave too little
    left_out: dict[str, dict[str, int]]  # rows in no part: their original part, reason, number


def _shaped(
    rows: Iterator[Row | None],
    translation: str | None,
    document: str | None,
    lines: Lines,
    where: str,
    extra: Collection[str] = (),
) -> tuple[Iterator[Row | None], tuple[str, ...]]:
    """Rows with numbered documents and split paragraphs, and their columns."""
    columns = ("text", *(["translation"] if translation else []), *(["document"] if document else []), *extra)
    return cut_lines(number_documents(rows, where) if document else rows, lines), columns


def _given(**settings: Any) -> dict[str, Any]:
    """The settings that are not empty."""
    return {name: value for name, value in settings.items() if value}
