"""Linked words of two sentences, and sentences with such links as input of two encoders."""

# B sentence, T token, D width

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import Reader, Stream
from infoflow.foundation import UserError, current_display, digest, running_word_spans, stream
from infoflow.models import Model

from ._encoders import Merge

Links = Int[np.ndarray, "_ 2"]
"""Pairs of a word in the source sentence and a word in the target sentence; each word occurs at most once."""

_PIECE = re.compile(r"\S+")
_LINK = re.compile(r"(\d+)-(\d+)")


class AbstractWordLinks(ABC):
    """One-to-one pairs of words; words are the corpus's own, or are found in the text if the corpus has none."""

    name: ClassVar[str]

    def word_spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each word of a text."""
        return running_word_spans(text)

    @property
    @abstractmethod
    def key(self) -> str:
        """Key of the links for alignments trained on them."""

    def partners(self, num_sentences: int) -> Int[np.ndarray, " sentence"]:
        """The target-side row that each sentence is linked with."""
        return np.arange(num_sentences)

    @abstractmethod
    def of(self, sentence_id: int, source_words: int, target_words: int) -> Links:
        """The links of one sentence that has this many words on each side after truncation."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class IdentityLinks(AbstractWordLinks):
    """Both models read the same text: word i is linked to word i."""

    name: ClassVar[str] = "identity"

    @property
    def key(self) -> str:
        return self.name

    def of(self, sentence_id: int, source_words: int, target_words: int) -> Links:
        return np.repeat(np.arange(min(source_words, target_words))[:, None], 2, axis=1)


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PharaohLinks(AbstractWordLinks):
    """Links from word aligners such as fast_align and eflomal; use the intersection of both directions.

    These tools split words at white space only: text in scripts without spaces has to be segmented.
    """

    name: ClassVar[str] = "file"

    links: dict[int, Links] = field(repr=False)  # sentence id → links

    def word_spans(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in _PIECE.finditer(text)]

    @classmethod
    def read(cls, path: Path | str, corpus: Corpus) -> "PharaohLinks":
        """Links from a file of `i-j` pairs (word i of the text, word j of the translation), one line per sentence.

        A word with several links is ambiguous: its links are left out and counted.
        """
        corpus.require("translation")
        lines = _lines(Path(path))
        if len(lines) != len(corpus):
            raise UserError(
                f"{path} must have one line for each of the {len(corpus):,} sentences of {corpus.name} (an empty one "
                f"for a sentence without links). Got {len(lines):,} lines."
            )
        links, dropped = {}, 0
        for number, (line, sentence) in enumerate(zip(lines, corpus, strict=True), start=1):
            pairs = _parse(line, f"{path}, line {number}")
            words = len(sentence.words or sentence.text.split()), len((sentence.translation or "").split())
            _check_range(pairs, words, f"{path}, line {number}")
            certain = _one_to_one(pairs)
            dropped += len(pairs) - len(certain)
            links[sentence.id] = certain
        if dropped:
            current_display().note(f"{path}: {dropped:,} links of words with several links were left out.")
        return cls(links=links)

    @property
    def key(self) -> str:
        return digest([self.name, {str(row): pairs.tolist() for row, pairs in self.links.items()}])

    def of(self, sentence_id: int, source_words: int, target_words: int) -> Links:
        if sentence_id not in self.links:
            raise UserError(
                f"The links say nothing about sentence {sentence_id}. Read them for the whole corpus that the "
                "sentences come from."
            )
        pairs = self.links[sentence_id]
        return pairs[(pairs[:, 0] < source_words) & (pairs[:, 1] < target_words)]


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ShuffledLinks(AbstractWordLinks):
    """The control: each sentence is linked with another one, with the words in random order.

    The partner sentence is the same in all epochs. Words are never linked with words of their own sentence: one correct
    link among many wrong ones would be enough to learn from, since wrong links average out in the squared error.
    """

    name: ClassVar[str] = "shuffled"

    seed: int = 0

    @property
    def key(self) -> str:
        return f"{self.name} {self.seed}"

    def partners(self, num_sentences: int) -> Int[np.ndarray, " sentence"]:
        if num_sentences < 2:
            raise UserError(f"Links can only be shuffled between at least 2 sentences. Got {num_sentences}.")
        circle = stream("shuffled-sentences", self.seed).permutation(num_sentences)
        partners = np.empty_like(circle)
        partners[circle] = np.roll(circle, 1)
        return partners

    def of(self, sentence_id: int, source_words: int, target_words: int) -> Links:
        rng, num = stream("shuffled-words", self.seed, sentence_id), min(source_words, target_words)
        return np.stack([rng.permutation(source_words)[:num], rng.permutation(target_words)[:num]], axis=1)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"The links {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise UserError(
            f"The links {path} are not UTF-8 text. Word aligners write lines such as: 0-0 1-2 2-1"
        ) from None


def _parse(line: str, where: str) -> Links:
    matches = [(item, _LINK.fullmatch(item)) for item in line.split()]
    if wrong := [item for item, match in matches if match is None]:
        raise UserError(f"{where}: links are written i-j, words counted from 0 (0-0 1-2). Got {wrong[0]}.")
    pairs = {(int(match[1]), int(match[2])) for _, match in matches if match is not None}
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def _check_range(pairs: Links, words: tuple[int, int], where: str) -> None:
    for column, side in enumerate(("text", "translation")):
        if len(pairs) and (last := int(pairs[:, column].max())) >= words[column]:
            raise UserError(
                f"{where}: the {side} has {words[column]} words, counted from 0. Got word {last}. The aligner must "
                "have read the same sentences, cut at white space."
            )


def _one_to_one(pairs: Links) -> Links:
    """The links of words that have no other link."""
    single = np.ones(len(pairs), dtype=bool)
    for column in range(2):
        _, place, times = np.unique(pairs[:, column], return_inverse=True, return_counts=True)
        single &= times[place] == 1
    return pairs[single]


# Sentences as input of two encoders, with linked words.


Words = Int[Tensor, "link 2"]
"""Pairs of a row of a batch and a word of that row's sentence."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LinkedBatch:
    """Some sentences on both sides; link i joins word i of `source_words` and word i of `target_words`."""

    source: Stream
    target: Stream
    source_words: Words
    target_words: Words
    rows: np.ndarray  # of the source sentences, in the corpus


class LinkedSentences:
    """A corpus as input of two models: the source model reads the text, the target model the text or its translation.

    Raises:
        UserError: Links need the same text on both sides, but there is a translation; or a tokenizer is slow and does
            not report words.
    """

    def __init__(
        self,
        source: Model,
        target: Model,
        corpus: Corpus,
        links: AbstractWordLinks,
        *,
        translated: bool = False,
        max_length: int = 64,
    ) -> None:
        if translated and isinstance(links, IdentityLinks):
            raise UserError(
                "Words of a text and of its translation do not correspond one by one. Give links: PharaohLinks.read."
            )
        target_corpus = _translations(corpus) if translated else corpus
        self.corpus, self.links, self.translated = corpus, links, translated
        self._source, self._target = (
            _reader(*side, max_length, links) for side in ((source, corpus), (target, target_corpus))
        )
        self._partners = links.partners(len(corpus))

    def __len__(self) -> int:
        return len(self.corpus)

    def by_length(self, token_budget: int) -> list[np.ndarray]:
        """All rows in batches of similar length; sentences without a token are left out."""
        return self._source.batches(token_budget)

    def batch(self, rows: np.ndarray) -> LinkedBatch:
        """The sentences `rows`, padded, with their linked words."""
        source = self._source.padded(rows).streams["encoder"]
        target = self._target.padded(self._partners[rows]).streams["encoder"]
        links = [_links(self.links, int(self.corpus.ids[row]), source, target, at) for at, row in enumerate(rows)]
        place = np.repeat(np.arange(len(rows)), [len(pairs) for pairs in links])
        words = np.concatenate(links)
        source_words, target_words = (torch.from_numpy(np.stack([place, words[:, side]], axis=1)) for side in (0, 1))
        return LinkedBatch(
            source=source, target=target, source_words=source_words, target_words=target_words, rows=rows
        )


def word_vectors(
    states_BTD: Float[Tensor, "sentence token width"],
    words_BT: Int[Tensor, "sentence token"],
    chosen: Words,
    merge: Merge = "last",
) -> Float[Tensor, "link width"]:
    """One vector per chosen word: its last token's vector, or the mean over its tokens."""
    sentence = chosen[:, 0]
    inside = words_BT[sentence] == chosen[:, 1:]
    if merge == "last":
        last = inside.shape[1] - 1 - inside.flip(1).int().argmax(dim=1)
        return states_BTD[sentence, last]
    weights = inside.to(states_BTD.dtype) / inside.sum(dim=1, keepdim=True)
    return torch.einsum("lt,ltd->ld", weights, states_BTD[sentence])


def _reader(model: Model, corpus: Corpus, max_length: int, links: AbstractWordLinks) -> Reader:
    if not model.require_tokenizer().is_fast:
        raise UserError(
            f"The tokenizer of {model.name} is slow and does not report words, so they cannot be linked. "
            "Load the model with a fast tokenizer."
        )
    options = {"max_length": max_length, "seed": 0, "decoder": False, "white_space_words": True}
    return Reader(model, corpus, **options, word_spans=links.word_spans)


def _translations(corpus: Corpus) -> Corpus:
    """The other side of a parallel corpus, as text."""
    corpus.require("translation")
    side = corpus.dataset.select_columns(["translation"])
    return Corpus.from_dataset(side, text="translation", name=f"{corpus.name}, translations")


def _links(links: AbstractWordLinks, sentence_id: int, source: Stream, target: Stream, place: int) -> np.ndarray:
    """The links of a sentence between words that have their own token (a token may span two words)."""
    sides = [stream.words[place].cpu().numpy() for stream in (source, target)]
    pairs = links.of(sentence_id, *(int(words.max()) + 1 for words in sides))
    return pairs[np.isin(pairs[:, 0], sides[0]) & np.isin(pairs[:, 1], sides[1])]
