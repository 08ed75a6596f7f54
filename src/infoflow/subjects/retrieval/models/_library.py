"""A library: passages as a model's tokens, the indexes over them, and the passages that a query may read."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError, current_display, digest, inside_word
from infoflow.models import evaluating, pad_rows

from ._bm25 import LexicalIndex
from ._dense_index import Backend, DenseIndex
from ._found import Excluded, Found, best
from ._passages import Passages
from ._retriever import Tower


def plain_tokens(tokenizer: Any, vocabulary: Vocabulary, texts: Sequence[str]) -> tuple[list[np.ndarray], int]:
    """Tokens of each text without special ones, int64, and how many special tokens the texts contained as words.

    Such a word becomes the unknown token if the tokenizer does not split it.
    """
    if not texts:
        return [], 0
    unknown = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else vocabulary.pad
    rows = tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False).input_ids
    given = [np.array(row, dtype=np.int64) for row in rows]
    special = [vocabulary.is_special[row] & (row != unknown) for row in given]
    plain = [np.where(written, unknown, row) for row, written in zip(given, special, strict=True)]
    return plain, sum(int(written.sum()) for written in special)


# The passages that a query may read: the best ones without excluded ones and copies, and the null passage.

NULL = -1  # the id of the null passage among candidates, and of an empty slot in results

Search = Callable[[int, Excluded | None], Found]
"""Search of an index for fixed queries, given k and the exclusions."""


def candidates(search: Search, k: int, exclude: Sequence[Collection[int]], text_keys: np.ndarray) -> Found:
    """The k best passages of each query, without excluded ones; of exact duplicates, only the best is kept.

    The search is widened until k passages remain or all were seen; missing ids are −1. `text_keys` are hashes of the
    passages' texts.
    """
    wanted = k
    while True:
        found = search(min(wanted, len(text_keys)), exclude)
        rows = [best(*_distinct(*row, text_keys), k, set()) for row in zip(*found, strict=True)]
        full = all((ids != NULL).all() for ids, _ in rows)
        exhausted = wanted >= len(text_keys) or bool((found.ids == NULL).any(axis=1).all())
        if full or exhausted:
            return Found.stacked(rows, k, found.scores.dtype)
        wanted *= 2


def without_excluded(ids: np.ndarray, exclude: Sequence[Collection[int]]) -> np.ndarray:
    """The passage of each query in `ids`, or −1 if the query must not read it: int64 (query,)."""
    return np.array(
        [NULL if id in set(map(int, out)) else id for id, out in zip(ids.tolist(), exclude, strict=True)],
        dtype=np.int64,
    )


def _distinct(ids: np.ndarray, scores: np.ndarray, text_keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The found passages without copies of better ones."""
    there = ids != NULL
    ids, scores = ids[there], scores[there]
    # Results are sorted by falling score, then rising id: the first of equal texts is kept.
    _, first = np.unique(text_keys[ids], return_index=True)
    return ids[first], scores[first]


# A library: passages as a model's tokens, and the indexes over them.

_BATCH = 256


@final
class Library:
    """Passages for one tokenizer.

    Special tokens written in a passage count as text and become the unknown token (`num_specials`). Long passages are
    truncated when read (`num_cut`), to a window around their answers if these are known.
    """

    def __init__(
        self,
        passages: Passages,
        tokenizer: Any,
        max_tokens: int = 128,
        backend: Backend = "torch",
        answers: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """
        Args:
            passages: The store.
            tokenizer: Tokenizer of reader and retriever; `answers` need a fast one.
            max_tokens: Maximum length of title and text for the retriever, including three special tokens.
            backend: Backend of dense search.
            answers: Passage id → the answers that it is known to contain, as written (ignoring case).

        Raises:
            UserError: There are answers for an unknown passage, or the tokenizer gives no token offsets.
        """
        self.passages, self.vocabulary = passages, Vocabulary.from_tokenizer(tokenizer)
        self.max_tokens, self._backend = max_tokens, backend
        self.dense: DenseIndex | None = None
        """The index for choosing candidates; the training loop refreshes it."""
        self._warned = False
        texts, titles = list(passages.texts()), [passages[id].title for id in range(len(passages))]
        self._bodies, in_bodies = plain_tokens(tokenizer, self.vocabulary, texts)
        self._titles, in_titles = plain_tokens(tokenizer, self.vocabulary, titles)
        self.num_specials = in_bodies + in_titles
        self._answers = {} if answers is None else answer_places(passages, tokenizer, answers)
        self.num_unanswered = 0 if answers is None else len(answers) - len(self._answers)
        """Number of passages that contain none of their given answers."""

    def __len__(self) -> int:
        return len(self.passages)

    @property
    def digest(self) -> str:
        """Sixteen hex digits of the passages and of the answer positions, which determine the tokens that are read."""
        if not self._answers:
            return self.passages.digest
        return digest([self.passages.digest, sorted((id, *place) for id, place in self._answers.items())])

    def body(self, id: int) -> np.ndarray:
        """Tokens of a passage for a reader, without special ones; empty for the null passage."""
        return self._bodies[id] if id != NULL else np.empty(0, dtype=np.int64)

    def body_within(self, id: int, room: int) -> np.ndarray:
        """At most `room` tokens of a passage: the first ones, or a window around its answers."""
        return window(self.body(id), room, self._answers.get(id))

    def encoded(self, id: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens `[CLS] title [SEP] body [SEP]` for a retriever, and their segments."""
        title = self._titles[id] if id != NULL else np.empty(0, dtype=np.int64)
        room = self.max_tokens - 3
        title = title[:room]
        body = self.body_within(id, room - len(title))
        start, end = [self.vocabulary.start], [self.vocabulary.end]
        ids = np.concatenate([start, title, end, body, end]).astype(np.int64)
        return ids, np.repeat([0, 1], [len(title) + 2, len(body) + 1])

    def vectors(self, tower: Tower, ids: Sequence[int]) -> Tensor:
        """The vectors of passages, (passage, width), with a gradient if the context allows."""
        rows, segments = zip(*map(self.encoded, ids), strict=True)
        tokens, real = pad_rows(rows, self.vocabulary.pad)
        device = next(tower.parameters()).device
        return tower(tokens.to(device), real.to(device), pad_rows(segments, 0)[0].to(device))

    def embed(self, tower: Tower) -> DenseIndex:
        """An index of all passages, encoded by `tower` without dropout."""
        device = next(tower.parameters()).device
        # In full precision, so that every training device gives the same vectors.
        with evaluating(tower), torch.autocast(device.type, enabled=False):
            parts = [
                self.vectors(tower, range(start, min(start + _BATCH, len(self)))).float().cpu()
                for start in range(0, len(self), _BATCH)
            ]
        return DenseIndex(torch.cat(parts), self._backend)

    @cached_property
    def lexical(self) -> LexicalIndex:
        """BM25 over the tokens of the bodies."""
        return LexicalIndex([body.tolist() for body in self._bodies])

    def words(self, input_ids: Tensor) -> list[np.ndarray]:
        """Each query's tokens without special ones, as BM25 needs them."""
        special = self.vocabulary.is_special
        return [row[~special[row]] for row in input_ids.cpu().numpy()]

    def by_words(self, queries: Sequence[np.ndarray], k: int, exclude: Excluded) -> Found:
        """The k best passages for each query (tokens without special ones) by BM25."""
        terms = [query.tolist() for query in queries]
        self._warn_beyond(k)
        return candidates(
            lambda wanted, out: self.lexical.search(terms, wanted, out), k, exclude, self.passages.text_keys
        )

    def by_vectors(self, queries: Tensor, k: int, exclude: Excluded) -> Found:
        """The k best passages for each query vector by the dense index."""
        assert self.dense is not None, "the index is built before it is searched"
        index, vectors = self.dense, queries.detach().float().cpu()
        self._warn_beyond(k)
        return candidates(lambda wanted, out: index.search(vectors, wanted, out), k, exclude, self.passages.text_keys)

    @property
    def num_cut(self) -> int:
        """Number of passages that are truncated for a retriever."""
        room = self.max_tokens - 3
        return sum(len(title) + len(body) > room for title, body in zip(self._titles, self._bodies, strict=True))

    def _warn_beyond(self, k: int) -> None:
        if k > len(self) and not self._warned:
            self._warned = True
            current_display().warn(f"A search requests {k} passages, but there are only {len(self)}.")


def vectors_digest(index: DenseIndex) -> str:
    """Sixteen hex digits of an index's vectors."""
    return hashlib.sha256(index.vectors.numpy().tobytes()).hexdigest()[:16]


def overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Mean share of each query's passages that are in both rankings, (query, k) each, relative to the longer one.

    Queries for which both rankings are empty are left out; NaN if all are.
    """
    pairs = [({*a} - {NULL}, {*b} - {NULL}) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    shared = [len(a & b) / max(len(a), len(b)) for a, b in pairs if a or b]
    return float(np.mean(shared)) if shared else float("nan")


class AnswerTokens(NamedTuple):
    """First token and end of the answers in a passage's text."""

    start: int
    end: int


def answer_places(passages: Passages, tokenizer: Any, answers: Mapping[int, Sequence[str]]) -> dict[int, AnswerTokens]:
    """Tokens from the first to the last answer of each passage; an answer's first whole-word match counts, whatever its
    case.
    """
    beyond = [id for id in answers if not 0 <= id < len(passages)]
    if beyond:
        raise UserError(
            f"Answers must refer to passages 0 to {len(passages) - 1}. Got passage {beyond[0]}.\n"
            "Number them in the order of the store."
        )
    if answers and not getattr(tokenizer, "is_fast", False):
        raise UserError(
            f"Cutting passages around their answers needs a fast tokenizer, which reports token positions. Got "
            f"{type(tokenizer).__name__}.\nLeave answers out, or convert the tokenizer."
        )
    found = {}
    for id, wanted in answers.items():
        text = passages[id].text
        spans = [span for answer in wanted if (span := _span(text, answer)) is not None]
        if spans:
            options = {"add_special_tokens": False, "split_special_tokens": True, "return_offsets_mapping": True}
            offsets = np.array(tokenizer(text, verbose=False, **options)["offset_mapping"]).reshape(-1, 2)
            if (place := _tokens(offsets, spans)) is not None:
                found[id] = place
    return found


def window(tokens: np.ndarray, room: int, place: AnswerTokens | None) -> np.ndarray:
    """At most `room` consecutive tokens: the first ones, or a window around the answers if these would be cut off.

    >>> window(np.arange(10), 4, AnswerTokens(6, 7)).tolist(), window(np.arange(10), 4, None).tolist()
    ([5, 6, 7, 8], [0, 1, 2, 3])
    """
    room = max(room, 0)
    if place is None or place.end <= room or len(tokens) <= room:
        return tokens[:room]
    start = min(max((place.start + place.end - room) // 2, 0), len(tokens) - room)
    start = min(start, place.start)
    return tokens[start : start + room]


def _span(text: str, answer: str) -> tuple[int, int] | None:
    """Characters of the first occurrence of the answer as whole words."""
    low, wanted = text.lower(), answer.strip().lower()
    if not wanted or len(low) != len(text):  # case folding changes the length: offsets would be wrong
        low, wanted = text, answer.strip()
    start = low.find(wanted) if wanted else -1
    while start >= 0:
        end = start + len(wanted)
        if not inside_word(low, start) and not inside_word(low, end):
            return start, end
        start = low.find(wanted, start + 1)
    return None


def _tokens(offsets: np.ndarray, spans: Iterable[tuple[int, int]]) -> AnswerTokens | None:
    """The tokens from the first character of all spans to the last one."""
    spans = list(spans)
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    inside = np.flatnonzero((offsets[:, 0] < last) & (offsets[:, 1] > first))
    return AnswerTokens(int(inside[0]), int(inside[-1]) + 1) if len(inside) else None
