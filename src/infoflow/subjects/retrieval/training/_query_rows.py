"""Rows for training with passages: queries with spans and gold passages, and questions about real text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from infoflow.corpus import Corpus, Encoded, FactWorld, Vocabulary, fact_corpus
from infoflow.foundation import UserError, current_display, digest, running_words
from infoflow.objectives import Example
from infoflow.training._data import TokenRows

from ..models import NULL, Library, origins, salient_spans


class QueryRows:
    """Unmasked queries as `ExampleRows`: a sentence with its spans, its gold passage, and its excluded passages."""

    def __init__(
        self,
        encoded: TokenRows,
        rows: np.ndarray,
        spans: Sequence[np.ndarray],
        gold: np.ndarray,
        excluded: Sequence[Sequence[int]],
        library: str = "",
        vocabulary: Vocabulary | None = None,
        unknown: int = 0,
    ) -> None:
        """`rows` of `encoded` are the queries. Each has `spans` (first token and end; empty: any token may be masked),
        a `gold` passage (−1: none) and `excluded` passages, which it must not read. `library` is the passages' digest.
        With a `vocabulary`, special tokens written in a sentence count as text and become `unknown`.
        """
        self._special = None if vocabulary is None else vocabulary.is_special
        self._unknown = unknown
        self._encoded, self._rows, self._spans = encoded, rows, spans
        self._gold = np.asarray(gold, dtype=np.int64)
        self._excluded = [np.array(sorted(one), dtype=np.int64) for one in excluded]
        self.sentence_ids: np.ndarray = encoded.sentence_ids[rows]
        self.lengths: np.ndarray = encoded.lengths[rows]
        marks = [[span.tolist(), out.tolist()] for span, out in zip(spans, self._excluded, strict=True)]
        self.digest = digest(["queries", self._gold.tolist(), digest(marks), library])

    @classmethod
    def of_tokens(
        cls, tokens: Sequence[np.ndarray], ids: np.ndarray, spans: Sequence[np.ndarray], gold: np.ndarray, **how: Any
    ) -> "QueryRows":
        """Queries from tokens, which may read every passage; `ids` are stable numbers, int64 (query,)."""
        return cls(_Tokens(tokens, ids), np.arange(len(tokens)), spans, gold, [()] * len(tokens), **how)

    def row(self, index: int) -> np.ndarray:
        """Token ids of one query, specials included."""
        tokens = self._encoded.row(int(self._rows[index]))
        if self._special is None or not (written := self._special[tokens[1:-1]]).any():
            return tokens
        return np.concatenate([tokens[:1], np.where(written, self._unknown, tokens[1:-1]), tokens[-1:]])

    @property
    def num_specials(self) -> int:
        """Number of special tokens written in sentences."""
        if self._special is None:
            return 0
        rows = (self._encoded.row(int(row))[1:-1] for row in self._rows)
        return sum(int((self._special[row] & (row != self._unknown)).sum()) for row in rows)

    def example(self, index: int) -> Example:
        labels = {"spans": self._spans[index], "gold": np.array(self._gold[index]), "excluded": self._excluded[index]}
        return Example(texts=(np.asarray(self.row(index), dtype=np.int64),), labels=labels)


def fact_query_rows(world: FactWorld, tokenizer: Any, library: Library) -> QueryRows:
    """The training text of a world as queries.

    In a fact's sentence, the object is the span, and the fact's passage is gold. In a sentence of the language, any
    word may be masked, and no passage helps.
    """
    corpus = fact_corpus(world)
    facts = [-1 if label is None else int(label) for label in corpus.column("label")]
    gold = np.array([NULL if fact < 0 else world.gold(world.facts[fact]) for fact in facts])
    # A world's queries are not sentences of its passages: by default, they use other words for the relation.
    return query_rows(corpus, tokenizer, library, gold, keep_spanless=True, exclude_origin=False)


def query_rows(
    corpus: Corpus,
    tokenizer: Any,
    library: Library,
    gold: np.ndarray | None = None,
    excluded: Sequence[Sequence[int]] | None = None,
    *,
    max_length: int = 128,
    keep_spanless: bool = False,
    exclude_origin: bool = True,
) -> QueryRows:
    """The sentences of a corpus as queries, with their salient spans (by the column `entity`, or by rules).

    `gold` is the passage that answers each sentence (−1: none). A sentence must not read its `excluded` passages, nor,
    with `exclude_origin`, passages that contain it word for word (`origins`). Sentences without a span are kept only
    with `keep_spanless`, and spans beyond `max_length` tokens are not masked.
    """
    gold = np.full(len(corpus), NULL) if gold is None else np.asarray(gold)
    excluded = [()] * len(corpus) if excluded is None else excluded
    if not len(gold) == len(excluded) == len(corpus):
        raise UserError(
            f"gold and excluded must name passages for each of {len(corpus):,} sentences. "
            f"Got {len(gold):,} and {len(excluded):,}."
        )
    if exclude_origin:
        excluded, gold = _without_origins(corpus, library, gold, excluded)
    _require_passages(corpus, library, excluded)
    encoded = corpus.encode(tokenizer, max_length=max_length)
    spans = _spans(corpus, encoded)
    rows = np.array([row for row, one in enumerate(spans) if keep_spanless or len(one)], dtype=np.int64)
    if not len(rows):
        raise UserError(
            f"No sentence of {corpus.name} has a salient span (a date, a name, or a word tagged in the column entity)."
            "\nUse a corpus with an entity column, or keep sentences without spans."
        )
    if len(rows) < len(corpus):
        current_display().note(f"{corpus.name}: {len(corpus) - len(rows):,} sentences without a span were left out.")
    parts = [spans[row] for row in rows], gold[rows], [excluded[row] for row in rows]
    found = QueryRows(encoded, rows, *parts, **_reading(library, tokenizer))
    if found.num_specials:
        current_display().note(
            f"{corpus.name}: {found.num_specials:,} special tokens that occur in sentences are read as text."
        )
    return found


def _reading(library: Library, tokenizer: Any) -> dict[str, Any]:
    """The library of queries, and the token for special tokens that they contain as text."""
    unknown = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else library.vocabulary.pad
    return {"library": library.digest, "vocabulary": library.vocabulary, "unknown": int(unknown)}


def _without_origins(
    corpus: Corpus, library: Library, gold: np.ndarray, excluded: Sequence[Sequence[int]]
) -> tuple[list[list[int]], np.ndarray]:
    """Excluded passages of each sentence, origins included, and its gold passage, or −1 if that is an origin."""
    own = origins([sentence.text for sentence in corpus], library.passages)
    found = [sorted({*ids, *map(int, more)}) for ids, more in zip(own, excluded, strict=True)]
    trivial = np.array([right in ids for ids, right in zip(own, gold.tolist(), strict=True)], dtype=bool)
    if num := sum(map(bool, own)):
        lost = f"; for {int(trivial.sum()):,} of them, this is the passage with the answer" if trivial.any() else ""
        current_display().note(
            f"{corpus.name}: {num:,} of {len(corpus):,} sentences must not read the passages that contain them{lost}."
        )
    return found, np.where(trivial, NULL, gold)


def _require_passages(corpus: Corpus, library: Library, excluded: Sequence[Sequence[int]]) -> None:
    num = len(library)
    if full := sum(len({int(id) for id in ids if 0 <= id < num}) == num for ids in excluded):
        raise UserError(
            f"{corpus.name}: for {full:,} sentences each of the {num:,} passages is excluded or contains them word for "
            "word, so nothing is left to read.\nAdd passages, exclude fewer, or set exclude_origin=False."
        )


def _spans(corpus: Corpus, encoded: Encoded) -> list[np.ndarray]:
    tagged = "entity" in corpus.columns
    found = []
    for row, sentence in enumerate(corpus):
        words = sentence.words or running_words(sentence.text)
        ranges = salient_spans(words, sentence.tags["entity"] if tagged else None)
        places = encoded.words(row)
        inside = [np.flatnonzero((places >= start) & (places < end)) for start, end in ranges]
        found.append(np.array([(one[0], one[-1] + 1) for one in inside if len(one)], dtype=np.int64).reshape(-1, 2))
    return found


class PassageRows:
    """Passages of a library for the inverse cloze task: `ExampleRows` of the sentences of each.

    A sentence ends after a token `.`, `!` or `?`.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self.sentence_ids: np.ndarray = np.arange(len(library), dtype=np.int64)
        self.lengths: np.ndarray = np.array([len(self.row(id)) for id in range(len(library))], dtype=np.int64)
        self.digest = library.digest

    def row(self, index: int) -> np.ndarray:
        """Tokens of `[CLS] title [SEP] body [SEP]`."""
        return self._library.encoded(index)[0]

    def example(self, index: int) -> Example:
        """The passage's sentences without special tokens, with the title's tokens and a key of the text."""
        tokens, segments = self._library.encoded(index)
        title, body = tokens[1 : int((segments == 0).sum()) - 1], tokens[segments == 1][:-1]
        ends = np.flatnonzero(np.isin(body, self._library.vocabulary.full_stops)) + 1
        sentences = [part for part in np.split(body, ends) if len(part)] or [body]
        key = self._library.passages.text_keys[index]
        return Example(texts=tuple(sentences), labels={"title": title, "key": np.array(key)})


# Rows for training on questions about real text: a question followed by its answer.


@final
@dataclass(frozen=True, slots=True, eq=False)
class QuestionRows:
    """Questions that can be masked, and their indices among the input."""

    rows: QueryRows
    kept: np.ndarray  # int64 (query,)
    num_cut: int  # queries whose question was truncated


def question_rows(
    questions: Sequence[str],
    answers: Sequence[str],
    ids: np.ndarray,
    tokenizer: Any,
    library: Library,
    gold: np.ndarray,
    *,
    max_length: int = 128,
    answer_tokens: int = 3,
) -> QuestionRows:
    """Queries `[CLS] question answer [SEP]` with the answer as the only span, so that objectives mask it.

    Questions whose answer has no token, or more than `answer_tokens`, are left out. Long questions are truncated at
    their end; answers never are. The number of masks shows the length of the answer. `ids` are stable question numbers.
    """
    options: Any = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    questions_ids, wanted = (tokenizer(list(texts), **options).input_ids for texts in (questions, answers))
    kept = np.array([row for row, answer in enumerate(wanted) if 0 < len(answer) <= answer_tokens], dtype=np.int64)
    if not len(kept):
        raise UserError(
            f"No question has an answer of at most {answer_tokens} tokens. Got {len(questions):,} questions.\n"
            "Allow longer answers (retrieval.answer_tokens), or a larger vocabulary (corpus.vocabulary)."
        )
    vocabulary = library.vocabulary
    tokens, spans, num_cut = [], [], 0
    for row in kept.tolist():
        room = max_length - 2 - len(wanted[row])
        num_cut += len(questions_ids[row]) > room
        question = questions_ids[row][: max(room, 0)]
        tokens.append(np.array([vocabulary.start, *question, *wanted[row], vocabulary.end], dtype=np.int64))
        spans.append(np.array([[1 + len(question), 1 + len(question) + len(wanted[row])]], dtype=np.int64))
    own = np.asarray(ids)[kept], spans, np.asarray(gold)[kept]
    return QuestionRows(QueryRows.of_tokens(tokens, *own, **_reading(library, tokenizer)), kept, num_cut)


@final
class _Tokens:
    """Token ids of each query: `TokenRows`."""

    def __init__(self, tokens: Sequence[np.ndarray], ids: np.ndarray) -> None:
        self._tokens = tokens
        self.sentence_ids = ids
        self.lengths = np.array([len(row) for row in tokens], dtype=np.int64)

    def row(self, index: int) -> np.ndarray:
        return self._tokens[index]
