"""Windows of running text, and pairs of segments for predicting the next segment (BERT) or the order (ALBERT)."""

from array import array
from dataclasses import dataclass
from typing import Literal

import numpy as np

from infoflow.foundation import UserError, current_display, digest, stream

from ._documents import stretches
from ._store import cached


def windows(lengths: np.ndarray, documents: np.ndarray, budget: int) -> np.ndarray:
    """Rows of the consecutive sentences in each window: int64 (window, 2), the first row and the one after the last.

    A window takes whole sentences up to `budget` tokens, and ends with its document at the latest; the next begins
    where it ends, so every sentence is in exactly one window. A sentence longer than the budget forms its own window
    (and is truncated when read). This is fairseq's break mode `complete`, without windows across documents.

    `lengths` are the numbers of tokens of the sentences, int (sentence,), without special ones, as is `budget`;
    `documents` are numbers, equal for consecutive sentences of one text (`Corpus.stretches`), int64 (sentence,).

    >>> windows(np.array([3, 4, 2, 9, 1]), np.array([0, 0, 0, 0, 1]), budget=7).tolist()
    [[0, 2], [2, 3], [3, 4], [4, 5]]
    """
    if budget < 2:
        raise UserError(f"A window must fit two sentences: at least 2 tokens. Got {budget}.")
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    firsts = []
    for begin, end in text_bounds(documents).tolist():
        first = begin
        while first < end:
            firsts.append(first)
            fitting = int(ends.searchsorted(ends[first] + budget, side="right")) - 1
            first = min(max(fitting, first + 1), end)
    first = np.array(firsts, dtype=np.int64)
    return np.stack([first, np.append(first[1:], len(documents))[: len(first)]], axis=1)


def text_bounds(documents: np.ndarray) -> np.ndarray:
    """The rows of each text: int64 (text, 2), the first and the one after the last."""
    first = np.flatnonzero(np.diff(documents, prepend=documents[:1] - 1))
    return np.stack([first, np.append(first[1:], len(documents))[: len(first)]], axis=1)


PairKind = Literal["next", "order"]
"""The question about a pair: whether B follows A, or whether the two were swapped."""

Lone = Literal["skip", "random"]
"""How to treat a one-sentence chunk in the order task."""

_SPECIALS = 3  # [CLS] A [SEP] B [SEP]
_TRIES = 10  # attempts to draw another document
_VERSION = 1  # increase when the same corpus gives different pairs
_SMALL = 20_000  # sentences; up to this number pairs take about a second and are not cached
_FIELDS = 7


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SegmentPairs:
    """Pairs of segments A and B as ranges of the corpus's tokens, special ones not counted."""

    first: np.ndarray  # int64 (pair, 2): begin and end of A
    second: np.ndarray  # int64 (pair, 2): begin and end of B
    negative: np.ndarray  # bool (pair,): B is random, or the two are swapped
    copies: np.ndarray  # int64 (pair,): the copy, from 0
    sentence_ids: np.ndarray  # int64 (pair,): id of the chunk's first sentence, unique within a copy

    def __len__(self) -> int:
        return len(self.negative)


def segment_pairs(
    lengths: np.ndarray,
    documents: np.ndarray,
    ids: np.ndarray,
    max_tokens: int,
    *,
    kind: PairKind = "next",
    seed: int = 0,
    copies: int = 10,
    short_share: float = 0.1,
    lone: Lone = "skip",
    key: str | None = None,
) -> SegmentPairs:
    """Cut documents into pairs as BERT's and ALBERT's `create_pretraining_data.py` do.

    The target is n = `max_tokens` − 3 tokens, or with probability `short_share`, drawn once per document, uniform in
    2..n. Sentences are collected up to the target or the end of the document. A is the first 1..len − 1 of them, drawn
    uniformly. With `kind="next"` B is the rest, or, if the chunk is one sentence or with probability ½, starts anywhere
    in another document (ten attempts; then, unlike BERT, the next document is chosen) and is filled up to the target;
    unused sentences start the next chunk. With `kind="order"` B is the rest, and A and B are swapped with probability
    ½. Until n tokens are left, the longer of A and B loses a token at its front or back, with probability ½ each.

    Labels of `"next"` are not balanced: a chunk of one sentence is always random. In the order task such a chunk has no
    label: it is skipped, or, with `lone="random"` as in ALBERT's code, a random B makes it a negative. Each copy
    depends only on (`seed`, its number) and the corpus. If a part lacks sentences of a document, the text before and
    after the gap counts as two texts of one document.

    `lengths` are the sentences' numbers of tokens without special ones, `ids` is `Corpus.ids`: int (sentence,). A pair
    has at most `max_tokens`, three special ones included. `copies` is BERT's dupe_factor, `short_share` its
    short_seq_prob.
    `key` identifies `lengths`, `documents` and `ids`; the pairs of a large corpus are then cached.
    """
    _check(documents, max_tokens, kind, copies, short_share, lone)
    used = np.flatnonzero(lengths > 0)
    ends = np.concatenate([[0], np.cumsum(lengths[used], dtype=np.int64)])
    bounds = text_bounds(stretches(documents, ids)[used])
    cutter = _Cutter(ends, bounds, documents[used], ids[used], max_tokens - _SPECIALS, kind, short_share, lone)

    def make() -> np.ndarray:
        with current_display().progress("cutting pairs", total=copies * len(bounds), unit="texts") as progress:
            return np.concatenate([cutter.copy(seed, copy, progress.advance) for copy in range(copies)])

    if key and len(lengths) > _SMALL:
        place = digest([_VERSION, key, max_tokens, kind, seed, copies, short_share, lone])
        folder = cached(f"pairs/{place}", lambda folder: np.save(folder / "pairs.npy", make()), "The pairs")
        rows = np.load(folder / "pairs.npy", mmap_mode="r")
    else:
        rows = make()
    if len(rows) == 0:
        raise UserError("No document has two sentences, so there is no pair of segments. Use longer documents.")
    return SegmentPairs(
        first=rows[:, :2], second=rows[:, 2:4], negative=rows[:, 4] > 0, copies=rows[:, 5], sentence_ids=rows[:, 6]
    )


class _Cutter:
    """Cuts unbroken texts (documents in BERT's code) into pairs: rows of `_FIELDS` numbers, as in `SegmentPairs`."""

    def __init__(
        self,
        ends: np.ndarray,  # tokens before each sentence, and the total
        bounds: np.ndarray,  # first row of each text, and the one after its last
        documents: np.ndarray,  # of each sentence
        ids: np.ndarray,  # of each sentence
        budget: int,
        kind: PairKind,
        short_share: float,
        lone: Lone,
    ) -> None:
        self._ends, self._bounds, self._ids = ends, bounds, ids
        self._documents = documents[bounds[:, 0]]
        self._budget, self._kind, self._short_share, self._lone = budget, kind, short_share, lone

    def copy(self, seed: int, copy: int, advance) -> np.ndarray:
        """All pairs of one copy."""
        rows = array("q")
        for text, (begin, end) in enumerate(self._bounds.tolist()):
            generator = stream("segment-pairs", seed, copy, int(self._ids[begin]))
            for first, second, negative, row in self._pairs(text, begin, end, generator):
                rows.extend((*first, *second, negative, copy, int(self._ids[row])))
            advance(1)
        return np.array(rows, dtype=np.int64).reshape(-1, _FIELDS)

    def _pairs(self, text: int, begin: int, end: int, generator: np.random.Generator):
        target = self._budget
        if generator.random() < self._short_share:
            target = int(generator.integers(2, self._budget, endpoint=True))
        row = begin
        while row < end:
            stop = self._filled(row, target, end)
            middle = row + (int(generator.integers(1, stop - row)) if stop - row >= 2 else 1)
            # The order of draws follows the published code, where a chunk of one sentence needs no draw.
            alone = stop - row == 1
            first, second = self._range(row, middle), self._range(middle, stop)
            if alone and self._kind == "order" and self._lone == "skip":
                row = stop
                continue
            negative = alone or bool(generator.random() < 0.5)
            following = stop
            if negative and (alone or self._kind == "next"):
                second = self._random(text, target - (first[1] - first[0]), generator)
                following = middle
            elif negative:
                first, second = second, first
            yield *_shortened(first, second, self._budget, generator), negative, row
            row = following

    def _random(self, text: int, target: int, generator: np.random.Generator) -> tuple[int, int]:
        """Sentences of another document, from a random start, up to `target` tokens."""
        for _ in range(_TRIES):
            other = int(generator.integers(len(self._bounds)))
            if self._documents[other] != self._documents[text]:
                break
        else:
            others = np.flatnonzero(self._documents != self._documents[text])
            other = int(others[generator.integers(len(others))])
        begin, end = self._bounds[other].tolist()
        row = begin + int(generator.integers(end - begin))
        return self._range(row, self._filled(row, max(target, 1), end))

    def _filled(self, row: int, target: int, end: int) -> int:
        """The row after the sentence that reaches `target` tokens, counting from `row`; at most `end`."""
        return min(int(self._ends.searchsorted(self._ends[row] + target)), end)

    def _range(self, row: int, stop: int) -> tuple[int, int]:
        return int(self._ends[row]), int(self._ends[stop])


def _shortened(
    first: tuple[int, int], second: tuple[int, int], budget: int, generator: np.random.Generator
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both ranges, with tokens removed from the front or back of the longer one until `budget` are left in all.

    Once both are equally long, they lose tokens in turn, the second first.
    """
    lengths = first[1] - first[0], second[1] - second[0]
    surplus = sum(lengths) - budget
    if surplus <= 0:
        return first, second
    front = generator.random(surplus) < 0.5
    longer, lead = int(lengths[1] >= lengths[0]), abs(lengths[0] - lengths[1])
    of_second = np.arange(surplus) >= lead
    of_second[lead:] = np.arange(max(surplus - lead, 0)) % 2 == 0
    of_second[:lead] = longer == 1
    cut = []
    for (begin, end), own in ((first, ~of_second), (second, of_second)):
        fronts = int(front[own].sum())
        cut.append((begin + fronts, end - (int(own.sum()) - fronts)))
    return cut[0], cut[1]


def _check(documents: np.ndarray, max_tokens: int, kind: str, copies: int, short_share: float, lone: str) -> None:
    if max_tokens < _SPECIALS + 2:
        raise UserError(
            f"A pair of segments needs at least {_SPECIALS + 2} tokens: two text tokens and three special tokens. "
            f"Got {max_tokens}. Raise the length."
        )
    if copies < 1 or not 0 <= short_share <= 1:
        raise UserError(f"copies must be at least 1 and short_share in [0, 1]. Got {copies} and {short_share}.")
    random = kind == "next" or lone == "random"
    if random and len(np.unique(documents)) < 2:
        raise UserError(
            "Next-sentence pairs take random segments from other documents, so they need at least two. "
            "Got one document.\nUse a corpus with several, separated by blank lines (or # newdoc, or a column)."
        )
