"""Training data: the token ids of sentences and of running text, and the choice of sentences for each update."""

import hashlib
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from infoflow.corpus import Encoded, Lone, PairKind, segment_pairs, stretches, windows
from infoflow.foundation import UserError, digest, stream
from infoflow.objectives import AbstractObjective, Batch, Example, Noise, Vocabulary


@runtime_checkable
class TokenRows(Protocol):
    """Encoded sentences, such as `infoflow.corpus.Encoded`."""

    @property
    def sentence_ids(self) -> np.ndarray:
        """Stable sentence ids, int64 (sentence,)."""
        ...

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each sentence, special tokens included."""
        ...

    def row(self, index: int) -> np.ndarray:
        """Token ids of one sentence, special tokens included."""
        ...


@runtime_checkable
class ExampleRows(TokenRows, Protocol):
    """Rows that are not a sentence with its translation, such as windows of a document, pairs or labelled text."""

    def example(self, index: int) -> Example:
        """The row as an input of an objective; `lengths` and `row` cover all its tokens."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainingData:
    """Encoded sentences with their vocabularies, and the tokenizers to save with the model."""

    source: TokenRows  # or `ExampleRows`
    vocabulary: Vocabulary
    target: TokenRows | None = None  # translations, in the order of the source rows
    target_vocabulary: Vocabulary | None = None
    tokenizer: Any = None  # saved with the model if given
    target_tokenizer: Any = None
    card: Mapping[str, Any] = field(default_factory=dict)  # what is known about the text: see `corpus.card_facts`

    def __post_init__(self) -> None:
        if len(self.source.lengths) == 0:
            raise UserError("Training needs at least one sentence. Got an empty corpus.")
        if self.target is not None and len(self.target.lengths) != len(self.source.lengths):
            raise UserError(
                "Source and target must have the same number of sentences. "
                f"Got {len(self.source.lengths)} and {len(self.target.lengths)}."
            )

    def known(self, objective: AbstractObjective) -> dict[str, Any]:
        """What is known about the text that an objective reads; translations are included only if it needs them."""
        sides = 2 if objective.needs_translation else 1
        return {name: one[:sides] if name == "language" else one for name, one in self.card.items()}

    def batch(self, objective: AbstractObjective, rows: np.ndarray, noise: tuple[int | str, ...], epoch: int) -> Batch:
        """The corrupted batch of `rows`.

        The noise of each example, both for its corruption and for a stochastic loss (`Batch.noise`), is keyed only by
        (`noise`, epoch, sentence id).
        """
        ids = [int(self.source.sentence_ids[row]) for row in rows.tolist()]
        high = objective.noise_epoch(epoch) << 32
        corrupted = [
            objective.corrupt(example, stream(*noise, high | id), self.vocabulary)
            for id, example in zip(ids, self._examples(objective, rows), strict=True)
        ]
        # An objective may repeat the corruption of a text in several epochs, but the loss draws anew in every epoch.
        drawn = Noise(tuple((*noise, epoch << 32 | id) for id in ids))
        target = self.target_vocabulary if objective.needs_translation else None  # else both sides come from one text
        return objective.collate(corrupted, self.vocabulary, target, drawn)

    def _examples(self, objective: AbstractObjective, rows: np.ndarray) -> Iterator[Example]:
        target = self.target if objective.needs_translation else None
        if isinstance(self.source, ExampleRows):
            yield from map(self.source.example, rows.tolist())
            return
        for row in rows.tolist():
            text = np.asarray(self.source.row(row), dtype=np.int64)
            translation = None if target is None else np.asarray(target.row(row), dtype=np.int64)
            yield Example(texts=(text,), translation=translation)


# The sentences of each update: a function of (seed, update), so that resuming needs no sampler state.
class LengthBucketSampler:
    """Batches of sentences of nearly equal length under a budget of padded source tokens, in random order.

    An epoch shuffles the sentences, sorts them stably by length (so ties stay shuffled), cuts the sorted list by the
    budget, and visits the pieces in random order. The cuts depend only on lengths, so every epoch has the same number
    of batches, and update n is batch n mod `num_batches` of epoch n div `num_batches`. Only *source* lengths matter, so
    all objectives of a study see the same batches in the same order.
    """

    def __init__(self, lengths: np.ndarray, seed: int, tokens: int, sentences: int | None = None) -> None:
        self._lengths = np.asarray(lengths)
        self._seed = seed
        self._cuts = _cuts(np.sort(self._lengths), tokens, sentences)
        self._epoch = -1
        self._order: np.ndarray
        self._batches: np.ndarray

    @property
    def num_batches(self) -> int:
        return len(self._cuts) - 1

    def epoch(self, update: int) -> int:
        return (update - 1) // self.num_batches

    def rows(self, update: int) -> np.ndarray:
        self._open(self.epoch(update))
        batch = self._batches[(update - 1) % self.num_batches]
        return self._order[self._cuts[batch] : self._cuts[batch + 1]]

    def updates_within(self, source_tokens: int | None, updates: int) -> int:
        """`updates`, or the number of the update that reaches `source_tokens` if that comes earlier."""
        if source_tokens is None:
            return updates
        read = 0
        for update in range(1, updates + 1):
            read += int(self._lengths[self.rows(update)].sum())
            if read >= source_tokens:
                return update
        return updates

    def _open(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        shuffled = stream("sentence-order", self._seed, epoch).permutation(len(self._lengths))
        self._order = shuffled[np.argsort(self._lengths[shuffled], kind="stable")]
        self._batches = stream("batch-order", self._seed, epoch).permutation(self.num_batches)
        self._epoch = epoch


def micro_batches(rows: np.ndarray, source: np.ndarray, target: np.ndarray | None, tokens: int) -> list[np.ndarray]:
    """Split an update's rows into forward passes of at most `tokens` padded tokens (source plus target).

    Rows of similar target length are put together to save padding; the split does not affect the update.
    """
    keys = source[rows] if target is None else target[rows]
    ordered = rows[np.argsort(keys, kind="stable")]
    source_lengths = source[ordered]
    target_lengths = np.zeros_like(source_lengths) if target is None else target[ordered]
    pieces, start, longest_source, longest_target = [], 0, 0, 0
    for stop in range(len(ordered)):
        longest_source = max(longest_source, source_lengths[stop])
        longest_target = max(longest_target, target_lengths[stop])
        if stop > start and (stop + 1 - start) * (longest_source + longest_target) > tokens:
            pieces.append(ordered[start:stop])
            start, longest_source, longest_target = stop, source_lengths[stop], target_lengths[stop]
    return [*pieces, ordered[start:]]


def _cuts(ascending: np.ndarray, tokens: int, sentences: int | None) -> np.ndarray:
    cuts = [0]
    while (start := cuts[-1]) < len(ascending):
        # In ascending order, the last sentence is the longest, so the padded size grows with every further sentence.
        limit = min(len(ascending), start + (sentences or len(ascending)))
        more = range(start + 2, limit + 1)  # a batch has at least one sentence
        cuts.append(start + 1 + bisect(more, tokens, key=lambda stop: (stop - start) * ascending[stop - 1]))
    return np.array(cuts)


_SENTENCES = 1 << 16  # rows at a time, so that a memory-mapped corpus stays on disk


class RunningText:
    """The concatenated tokens of an encoded corpus, without the special tokens of its sentences."""

    def __init__(self, encoded: Encoded) -> None:
        self._encoded = encoded
        self.lengths = _ordinary_tokens(encoded)
        """Number of tokens of each sentence, without special tokens: int64 (sentence,)."""
        self.ends = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        """Number of tokens before each sentence, and the total: int64 (sentence + 1,)."""

    def tokens(self, begin: int, end: int) -> np.ndarray:
        """Token ids from position `begin` to before `end`: int64 (token,)."""
        if begin == end:
            return np.empty(0, dtype=np.int64)
        first = int(self.ends.searchsorted(begin, side="right")) - 1
        stop = int(self.ends.searchsorted(end, side="left"))
        part = slice(int(self._encoded.offsets[first]), int(self._encoded.offsets[stop]))
        text = self._encoded.flat_ids[part][~self._encoded.flat_special[part]]
        return text[begin - self.ends[first] : end - self.ends[first]].astype(np.int64)


class WindowRows:
    """Windows of consecutive sentences of a document, each as one text: `ExampleRows` of `[CLS] s1 s2 … [SEP]`.

    The label `sentence_starts` (bool, one for each token) marks the starts of sentences. A window has the id of its
    first sentence and at most `budget` tokens, [CLS] and [SEP] included; longer sentences are truncated. A gap in a
    document ends a window.
    """

    def __init__(self, encoded: Encoded, documents: np.ndarray | None, budget: int, vocabulary: Vocabulary) -> None:
        documents = _known(documents, "A window")
        if budget < 4:
            raise UserError(
                f"A window needs at least 4 tokens: two text tokens, [CLS] and [SEP]. Got {budget}. Raise the length."
            )
        self._text, self._vocabulary = RunningText(encoded), vocabulary
        bounds = windows(self._text.lengths, stretches(documents, encoded.sentence_ids), budget - 2)
        begins, ends = self._text.ends[bounds].T
        bounds, begins, ends = (each[ends > begins] for each in (bounds, begins, ends))
        self._begins, self._ends = begins, np.minimum(ends, begins + budget - 2)
        self.sentences = bounds
        """The row of each window's first sentence, and the row after its last: int64 (window, 2)."""
        self.sentence_ids: np.ndarray = encoded.sentence_ids[bounds[:, 0]]
        self.lengths: np.ndarray = self._ends - self._begins + 2
        self.digest = _digest("windows", budget, begins, ends)

    def row(self, index: int) -> np.ndarray:
        text = self._text.tokens(int(self._begins[index]), int(self._ends[index]))
        return np.concatenate([[self._vocabulary.start], text, [self._vocabulary.end]])

    def example(self, index: int) -> Example:
        row = self.row(index)
        first, stop = self.sentences[index].tolist()
        places = self._text.ends[first:stop] - self._begins[index] + 1
        starts = np.zeros(len(row), dtype=bool)
        starts[places[self._text.lengths[first:stop] > 0]] = True
        return Example(texts=(row,), labels={"sentence_starts": starts})


class PairRows:
    """Pairs of segments as BERT and ALBERT read them (see `segment_pairs`): `ExampleRows` of two texts.

    The texts are A and then B, without special tokens. An objective assembles `[CLS] A [SEP] B [SEP]`, and `lengths`
    and `row` include these three special tokens. The label is `is_random` (`kind="next"`) or `is_swapped` (`"order"`),
    0 or 1.
    """

    def __init__(
        self,
        encoded: Encoded,
        documents: np.ndarray | None,
        max_tokens: int,  # of a pair, its three special tokens included
        vocabulary: Vocabulary,
        *,
        kind: PairKind = "next",
        seed: int = 0,
        copies: int = 10,
        short_share: float = 0.1,
        lone: Lone = "skip",
        key: str | None = None,  # identifies the sentences, so that the pairs of a large corpus can be cached
    ) -> None:
        documents = _known(documents, "A pair of segments")
        self._text, self._vocabulary = RunningText(encoded), vocabulary
        self._label = "is_random" if kind == "next" else "is_swapped"
        settings = {"kind": kind, "seed": seed, "copies": copies, "short_share": short_share, "lone": lone}
        self.pairs = segment_pairs(self._text.lengths, documents, encoded.sentence_ids, max_tokens, **settings, key=key)
        pairs = self.pairs
        # An id is part of the key of an epoch's noise, and has 32 bits.
        self.sentence_ids: np.ndarray = (pairs.sentence_ids * copies + pairs.copies) % (1 << 32)
        self.lengths: np.ndarray = (np.diff(pairs.first) + np.diff(pairs.second))[:, 0] + 3
        self.digest = _digest("pairs", max_tokens, pairs.first, pairs.second, pairs.negative)

    def row(self, index: int) -> np.ndarray:
        """Token ids of `[CLS] A [SEP] B [SEP]`."""
        first, second = self._segments(index)
        start, end = [self._vocabulary.start], [self._vocabulary.end]
        return np.concatenate([start, first, end, second, end])

    def example(self, index: int) -> Example:
        return Example(
            texts=self._segments(index), labels={self._label: np.array(int(self.pairs.negative[index]), dtype=np.int64)}
        )

    def _segments(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        first, second = self.pairs.first[index].tolist(), self.pairs.second[index].tolist()
        return self._text.tokens(*first), self._text.tokens(*second)


def _ordinary_tokens(encoded: Encoded) -> np.ndarray:
    counts = np.empty(len(encoded), dtype=np.int64)
    for start in range(0, len(encoded), _SENTENCES):
        offsets = encoded.offsets[start : start + _SENTENCES + 1]
        before = np.concatenate([[0], np.cumsum(~encoded.flat_special[offsets[0] : offsets[-1]])])
        counts[start : start + _SENTENCES] = np.diff(before[offsets - offsets[0]])
    return counts


def _known(documents: np.ndarray | None, what: str) -> np.ndarray:
    if documents is None:
        raise UserError(
            f"{what} needs documents: consecutive sentences. Got a corpus without documents.\n"
            "Read one with documents: Corpus.from_text(path, documents=True), or a table's document_column."
        )
    return documents


def _digest(kind: str, length: int, *arrays: np.ndarray) -> str:
    hashed = hashlib.sha256()
    for values in arrays:
        hashed.update(np.ascontiguousarray(values).data)
    return digest([kind, length, hashed.hexdigest()])
