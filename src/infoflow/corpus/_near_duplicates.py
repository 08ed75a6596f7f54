"""Which sentences repeat one of others, as they are or but for one word."""

# S sentence, W word of any sentence of a batch

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from infoflow.foundation import hash64_array

LEAST_WORDS = 4
"""Sentences of fewer words are near duplicates only where their words are equal: `I see.` and `I know.` are not."""

_BATCH = 1 << 14  # sentences: signatures of one batch lie in memory at a time, and those of the sentences looked for


def repeats(texts: Iterable[str], others: Iterable[str]) -> np.ndarray:
    """Which of `texts` stand in `others`, without regard to case, spacing and compatibility forms: bool (S,)."""
    known = _sorted(_text_hashes(batch) for batch in _batches(others))
    found = [_within(_text_hashes(batch), known) for batch in _batches(texts)]
    return _joined(found, bool)


def nearly_repeats(texts: Iterable[str], others: Iterable[str]) -> np.ndarray:
    """Which of `texts` are near duplicates of one of `others`: bool (S,).

    Two sentences are near duplicates when their words are equal, or one word apart: one word substituted, inserted or
    deleted, where both have at least four words (`LEAST_WORDS`). Words are separated by white space (so a sentence of a
    script without spaces is one word), without regard to case, compatibility forms and punctuation.

    Every sentence is looked up by what is left of it with each word masked (substitution) or dropped (insertion,
    deletion), so the time grows with the number of words and not with that of pairs; memory grows with the words of
    `others` and not with those of `texts`.
    """
    known = _Index(others)
    return _joined([known.holds(batch) for batch in _signatures(texts)], bool)


def normalised(text: str) -> str:
    """The text in one case, compatibility form (NFKC) and spacing."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Signatures:
    """Hashes of a batch of sentences; those of words are sums over the rest of the sentence."""

    length_S: np.ndarray  # in words
    whole_S: np.ndarray  # Σ h(word, position)
    sentence_W: np.ndarray  # of each word
    masked_W: np.ndarray  # of the sentence with another word there, whichever
    dropped_W: np.ndarray  # of the sentence without that word: `whole_S` of a sentence one word shorter


class _Index:
    """Signatures of the sentences that are looked for."""

    def __init__(self, texts: Iterable[str]) -> None:
        batches = [_kept(batch) for batch in _signatures(texts)]
        self._same = _sorted(same for same, _ in batches)
        self._shorter = _sorted(shorter for _, shorter in batches)

    def holds(self, batch: _Signatures) -> np.ndarray:
        length_W = batch.length_S[batch.sentence_W]
        by_word = (length_W >= LEAST_WORDS) & _within(batch.masked_W, self._same)
        by_word |= (length_W > LEAST_WORDS) & _within(batch.dropped_W, self._same)
        whole = _within(batch.whole_S, self._same) | _within(batch.whole_S, self._shorter)
        return whole | _any(by_word, batch)


def _kept(batch: _Signatures) -> tuple[np.ndarray, np.ndarray]:
    """What a sentence may be equal to: itself or its masked forms, and what one word less makes of it.

    Sentences of punctuation alone are left out: without words all would be equal.
    """
    length_W = batch.length_S[batch.sentence_W]
    same = np.concatenate([batch.whole_S[batch.length_S > 0], batch.masked_W[length_W >= LEAST_WORDS]])
    return same, batch.dropped_W[length_W > LEAST_WORDS]


def _signatures(texts: Iterable[str]) -> Iterator[_Signatures]:
    return (_batch_signatures(batch) for batch in _batches(texts))


def _batch_signatures(texts: tuple[str, ...]) -> _Signatures:
    words_S = [text.split() for text in _without_punctuation(map(normalised, texts))]
    length_S = np.array([len(words) for words in words_S], dtype=np.int64)
    sentence_W = np.repeat(np.arange(len(words_S)), length_S)
    end_S = np.cumsum(length_S)
    first_S = end_S - length_S
    word_W, here_W = _word_hashes(words_S), np.arange(len(sentence_W))
    position_W = here_W - first_S[sentence_W]
    hash_W, moved_W = (hash64_array(("word",), word_W, position_W - shift) for shift in (0, 1))
    sums, moved = (np.concatenate([np.zeros(1, np.uint64), np.cumsum(values)]) for values in (hash_W, moved_W))
    whole_S = sums[end_S] - sums[first_S]  # modulo 2^64, as all sums here
    before_W, after_W = sums[here_W] - sums[first_S[sentence_W]], moved[end_S[sentence_W]] - moved[here_W + 1]
    return _Signatures(
        length_S=length_S,
        whole_S=whole_S,
        sentence_W=sentence_W,
        masked_W=whole_S[sentence_W] - hash_W + hash64_array(("masked",), position_W),
        dropped_W=before_W + after_W,
    )


def _batches(texts: Iterable[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(texts)
    while batch := tuple(islice(rest, _BATCH)):
        yield batch


def _word_hashes(words_S: list[list[str]]) -> np.ndarray:
    ids: dict[str, int] = {}
    id_W = np.fromiter((ids.setdefault(word, len(ids)) for words in words_S for word in words), dtype=np.int64)
    return _hashes(ids)[id_W]


def _text_hashes(texts: Iterable[str]) -> np.ndarray:
    return _hashes(map(normalised, texts))


def _hashes(texts: Iterable[str]) -> np.ndarray:
    digests = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)


class _Punctuation(dict[int, int | None]):
    """For `str.translate`: deletes what Unicode calls punctuation, and keeps the rest."""

    def __missing__(self, character: int) -> int | None:
        deleted = unicodedata.category(chr(character)).startswith("P")
        self[character] = None if deleted else character
        return self[character]


_PUNCTUATION = _Punctuation()


def _without_punctuation(texts: Iterable[str]) -> list[str]:
    return "\n".join(texts).translate(_PUNCTUATION).split("\n")  # normalised texts hold no line break


def _any(by_word: np.ndarray, batch: _Signatures) -> np.ndarray:
    return np.bincount(batch.sentence_W[by_word], minlength=len(batch.length_S)) > 0


def _within(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    if len(ordered) == 0:
        return np.zeros(len(values), dtype=bool)
    place = np.searchsorted(ordered, values).clip(max=len(ordered) - 1)
    return ordered[place] == values


def _sorted(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.unique(_joined(list(parts), np.uint64))


def _joined(parts: list[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)
