"""Documents of a corpus, and sentences that repeat others exactly or with one word changed."""

# S sentence, W word of any sentence of a batch, X part taken out of a sentence: a word, or two characters

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from infoflow.foundation import (
    UserError,
    as_written,
    comparable,
    hash64,
    hash64_array,
    is_unspaced,
    running_words,
    without_punctuation,
)

from ._columns import Row, is_missing


def number_documents(rows: Iterable[Row | None], where: str) -> Iterator[Row | None]:
    """The rows with each document name replaced by a number, from 0."""
    seen: set[int] = set()  # hashes, because names may be long
    current: Any = None
    for number, row in enumerate(rows, start=1):
        if row is not None:
            name = row["document"]
            if is_missing(name) or not isinstance(name, str | int | float | np.integer | np.floating) or name == "":
                raise UserError(
                    f"{where}, {number}: the document column must not be empty. Got {as_written(name)}.\n"
                    "Fill in the name or number of the document in every row, or name another column."
                )
            if not seen or name != current:
                current, key = name, hash64("document", str(name))
                if key in seen:
                    raise UserError(
                        f"{where}, {number}: the sentences of a document must be consecutive. "
                        f"{as_written(name)} occurs again after another document.\nSort the rows by document."
                    )
                seen.add(key)
            row = {**row, "document": len(seen) - 1}
        yield row


def stretches(documents: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """int64 (sentence,): a number, from 0, for each run of consecutive sentences of one document.

    A part of a corpus may lack sentences of a document: the texts before and after the gap are not contiguous. `ids`
    are `Corpus.ids` of the sentences.
    """
    if len(documents) == 0:
        return np.zeros(0, dtype=np.int64)
    begins = (np.diff(documents) != 0) | (np.diff(ids) != 1)
    return np.concatenate([[0], np.cumsum(begins)])


def document_hashes(of_sentences: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """uint64 (sentence,): a hash of each sentence's document, from its sentences' hashes in order."""
    order = np.argsort(documents, kind="stable")
    starts = np.flatnonzero(np.diff(documents[order], prepend=documents[order][:1] - 1))
    lengths = np.diff(starts, append=len(order))
    places = np.arange(len(order)) - np.repeat(starts, lengths)
    sums = np.add.reduceat(hash64_array(("place",), of_sentences[order].view(np.int64), places), starts)  # modulo 2^64
    result = np.empty(len(order), dtype=np.uint64)
    result[order] = np.repeat(hash64_array(("document",), sums.view(np.int64), lengths), lengths)
    return result


def most_of_document(found: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Whether at least half of the sentences of each sentence's document were found: bool (sentence,)."""
    _, document, sizes = np.unique(documents, return_inverse=True, return_counts=True)
    return (2 * np.bincount(document, weights=found, minlength=len(sizes)) >= sizes)[document]


LEAST_WORDS = 4
"""Shorter sentences are near duplicates only if their words are equal: `I see.` and `I know.` are not."""

_BATCH = 1 << 14  # sentences read at a time


def repeats(texts: Iterable[str], others: Iterable[str]) -> np.ndarray:
    """Which of `texts` occur in `others`, ignoring case, spacing and compatibility forms: bool (S,)."""
    known = _sorted(hashes(map(normalised, batch)) for batch in _batches(others))
    found = [_within(hashes(map(normalised, batch)), known) for batch in _batches(texts)]
    return np.concatenate([np.zeros(0, dtype=bool), *found])


def nearly_repeats(texts: Iterable[str], others: Iterable[str]) -> np.ndarray:
    """Which of `texts` are near duplicates of one of `others`: bool (S,).

    Two sentences are near duplicates if their words are equal, or one word apart: one word substituted, inserted or
    deleted, with at least four words in both (`LEAST_WORDS`). Words are those of running text, ignoring case,
    compatibility forms and punctuation. In scripts without spaces each character counts as a word; there, replacing two
    neighbouring characters by one or two others also counts as one word apart, if at least four remain.

    Every sentence is looked up by what remains when each word in turn is masked (substitution) or dropped (insertion,
    deletion), so time grows with the number of words, not of pairs, and memory with the words of `others` only.
    """
    kept = [_kept(_signatures(batch)) for batch in _batches(others)]
    same, shorter = _sorted(one for one, _ in kept), _sorted(one for _, one in kept)
    found = [_holds(_signatures(batch), same, shorter) for batch in _batches(texts)]
    return np.concatenate([np.zeros(0, dtype=bool), *found])


def hashes(texts: Iterable[str], key: str = "") -> np.ndarray:
    """uint64 (text,): a hash of each text, which differs between keys."""
    coded = (text.encode("utf-8", "surrogatepass") for text in texts)
    digests = (hashlib.blake2b(one, key=key.encode(), digest_size=8).digest() for one in coded)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def normalised(text: str) -> str:
    """The text with normalised case, form (`comparable`) and spacing."""
    return " ".join(comparable(text).casefold().split())


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Signatures:
    """Hashes of a batch of sentences: whole, with any one word replaced, and without it."""

    length_S: np.ndarray  # in words
    whole_S: np.ndarray  # Σ h(word, position)
    sentence_X: np.ndarray  # of each word, and of each two neighbouring characters
    spare_X: np.ndarray  # number of words of its sentence beyond the minimum
    masked_X: np.ndarray  # of the sentence with any other word in its place
    dropped_X: np.ndarray  # of the sentence without it: `whole_S` of a shorter sentence


def _holds(batch: _Signatures, same: np.ndarray, shorter: np.ndarray) -> np.ndarray:
    """Which sentences of a batch match others, whose hashes are as in `_kept`, sorted."""
    by_word = (batch.spare_X >= 0) & _within(batch.masked_X, same)
    by_word |= (batch.spare_X > 0) & _within(batch.dropped_X, same)
    whole = _within(batch.whole_S, same) | _within(batch.whole_S, shorter)
    return whole | (np.bincount(batch.sentence_X[by_word], minlength=len(batch.length_S)) > 0)


def _kept(batch: _Signatures) -> tuple[np.ndarray, np.ndarray]:
    """Hashes that a sentence may match: itself or its masked forms, and its forms with one word fewer.

    Sentences of only punctuation are left out, since without words all would be equal.
    """
    same = np.concatenate([batch.whole_S[batch.length_S > 0], batch.masked_X[batch.spare_X >= 0]])
    return same, batch.dropped_X[batch.spare_X > 0]


def _signatures(texts: tuple[str, ...]) -> _Signatures:
    lines = without_punctuation("\n".join(map(normalised, texts)))  # normalised texts have no line breaks
    words_S = [running_words(text) for text in lines.split("\n")]
    length_S = np.array([len(words) for words in words_S], dtype=np.int64)
    sentence_W = np.repeat(np.arange(len(words_S)), length_S)
    end_S = np.cumsum(length_S)
    first_S = end_S - length_S
    word_W, unspaced_W = _word_hashes(words_S)
    position_W = np.arange(len(sentence_W)) - first_S[sentence_W]
    start = np.zeros(1, np.uint64)
    hashed = (hash64_array(("word",), word_W, position_W - shift) for shift in range(3))
    sums = [np.concatenate([start, np.cumsum(values)]) for values in hashed]  # modulo 2^64
    found = []
    pairs_W = unspaced_W[:-1] & unspaced_W[1:] & (sentence_W[:-1] == sentence_W[1:])
    for size, at in enumerate((np.arange(len(sentence_W)), np.flatnonzero(pairs_W)), start=1):
        sentence, end = sentence_W[at], end_S[sentence_W[at]]
        before = sums[0][at] - sums[0][first_S[sentence]]
        masked, dropped = (sums[shift][end] - sums[shift][at + size] for shift in (size - 1, size))
        masked = before + hash64_array(("masked",), position_W[at]) + masked
        found.append((sentence, length_S[sentence] - LEAST_WORDS - 2 * (size - 1), masked, before + dropped))
    sentence_X, spare_X, masked_X, dropped_X = map(np.concatenate, zip(*found, strict=True))
    return _Signatures(
        length_S=length_S,
        whole_S=sums[0][end_S] - sums[0][first_S],
        sentence_X=sentence_X,
        spare_X=spare_X,
        masked_X=masked_X,
        dropped_X=dropped_X,
    )


def _batches(texts: Iterable[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(texts)
    while batch := tuple(islice(rest, _BATCH)):
        yield batch


def _word_hashes(words_S: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """The hash of each word, and whether it is one character of a script without spaces."""
    ids: dict[str, int] = {}
    id_W = np.fromiter((ids.setdefault(word, len(ids)) for words in words_S for word in words), dtype=np.int64)
    return hashes(ids)[id_W], np.fromiter(map(is_unspaced, ids), dtype=bool)[id_W]


def _within(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    if len(ordered) == 0:
        return np.zeros(len(values), dtype=bool)
    place = np.searchsorted(ordered, values).clip(max=len(ordered) - 1)
    return ordered[place] == values


def _sorted(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *parts]))
