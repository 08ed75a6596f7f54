"""Rows of running text: windows of a document, and pairs of its segments."""

import hashlib

import numpy as np

from infoflow.corpus import Encoded, Lone, PairKind, segment_pairs, stretches, windows
from infoflow.foundation import UserError, digest
from infoflow.objectives import Example, Vocabulary

_SENTENCES = 1 << 16  # at a time, so that a memory-mapped corpus stays on disk


class RunningText:
    """The concatenated tokens of an encoded corpus, without the special tokens of its sentences."""

    def __init__(self, encoded: Encoded) -> None:
        self._encoded = encoded
        self.lengths = _ordinary_tokens(encoded)
        """Tokens of each sentence, special ones not counted: int64 (sentence,)."""
        self.ends = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        """Tokens before each sentence, and the total: int64 (sentence + 1,)."""

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
    """Consecutive sentences of a document as one text each: `ExampleRows` of `[CLS] s1 s2 … [SEP]`.

    Its label `sentence_starts` (bool, one for each token) marks the starts of sentences. The id of a window is that of
    its first sentence. Gaps in a document end a window.
    """

    def __init__(self, encoded: Encoded, documents: np.ndarray | None, budget: int, vocabulary: Vocabulary) -> None:
        """
        Args:
            encoded: The sentences.
            documents: The document of each, `Corpus.documents`.
            budget: Maximum number of tokens of a window, [CLS] and [SEP] included; a longer sentence is truncated.
            vocabulary: Vocabulary of the token ids.

        Raises:
            UserError: There are no documents, or no room for two sentences.
        """
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
        """Rows of the sentences of each window, the first and the one after the last: int64 (window, 2)."""
        self.sentence_ids: np.ndarray = encoded.sentence_ids[bounds[:, 0]]
        self.lengths: np.ndarray = self._ends - self._begins + 2
        self.digest = _digest("windows", budget, begins, ends)

    def row(self, index: int) -> np.ndarray:
        """Token ids of a window, specials included."""
        text = self._text.tokens(int(self._begins[index]), int(self._ends[index]))
        return np.concatenate([[self._vocabulary.start], text, [self._vocabulary.end]])

    def example(self, index: int) -> Example:
        """One text, and the starts of its sentences."""
        row = self.row(index)
        first, stop = self.sentences[index].tolist()
        places = self._text.ends[first:stop] - self._begins[index] + 1
        starts = np.zeros(len(row), dtype=bool)
        starts[places[self._text.lengths[first:stop] > 0]] = True
        return Example(texts=(row,), labels={"sentence_starts": starts})


class PairRows:
    """Pairs of segments as BERT and ALBERT read them (see `segment_pairs`): `ExampleRows` of two texts.

    The texts are bare, A then B; an objective assembles `[CLS] A [SEP] B [SEP]`, and `lengths` and `row` include its
    three special tokens. The label is `is_random` (`kind="next"`) or `is_swapped` (`"order"`), 0 or 1.
    """

    def __init__(
        self,
        encoded: Encoded,
        documents: np.ndarray | None,
        max_tokens: int,
        vocabulary: Vocabulary,
        *,
        kind: PairKind = "next",
        seed: int = 0,
        copies: int = 10,
        short_share: float = 0.1,
        lone: Lone = "skip",
        key: str | None = None,
    ) -> None:
        """
        Args:
            encoded: The sentences, whole: pairs are cut, front or back.
            documents: The document of each, `Corpus.documents`.
            max_tokens: Maximum length of a pair, its three special tokens included.
            vocabulary: Vocabulary of the token ids.
            kind: The question about a pair.
            seed: Seeds all draws.
            copies: Passes over the corpus with different draws.
            short_share: Share of documents with a shorter target.
            lone: How to treat one-sentence chunks in the order task.
            key: Identifies the sentences; the pairs of a large corpus are then cached.

        Raises:
            UserError: There are no documents, only one where several are needed, or no room for two sentences.
        """
        documents = _known(documents, "A pair of segments")
        self._text, self._vocabulary = RunningText(encoded), vocabulary
        self._label = "is_random" if kind == "next" else "is_swapped"
        settings = {"kind": kind, "seed": seed, "copies": copies, "short_share": short_share, "lone": lone}
        self.pairs = segment_pairs(self._text.lengths, documents, encoded.sentence_ids, max_tokens, **settings, key=key)
        pairs = self.pairs
        # An id keys the noise of an epoch, and has 32 bits.
        self.sentence_ids: np.ndarray = (pairs.sentence_ids * copies + pairs.copies) % (1 << 32)
        self.lengths: np.ndarray = (np.diff(pairs.first) + np.diff(pairs.second))[:, 0] + 3
        self.digest = _digest("pairs", max_tokens, pairs.first, pairs.second, pairs.negative)

    def row(self, index: int) -> np.ndarray:
        """Token ids of `[CLS] A [SEP] B [SEP]`."""
        first, second = self._segments(index)
        start, end = [self._vocabulary.start], [self._vocabulary.end]
        return np.concatenate([start, first, end, second, end])

    def example(self, index: int) -> Example:
        """Both segments, and the pair's label."""
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
