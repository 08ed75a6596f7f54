"""Subwords and the words they belong to, from a fast tokenizer's word ids."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding
from transformers import PreTrainedTokenizerBase

NOT_A_WORD = -1
"""Word id, and span, of a special token."""

_PROBE = ("a", "b", "a")
_WORD = re.compile(r"\S+")


class Alignment(NamedTuple):
    """One encoded sentence: token ids, and for each token its word, its characters, and whether it is special."""

    ids: list[int]
    words: list[int]
    spans: list[tuple[int, int]]
    special: list[bool]
    truncated: bool


class SubwordAligner:
    """Encodes sentences, given as text or as words, and says to which word each token belongs.

    Words, where the corpus has them, go in one by one. A tokenizer that marks a word's start by the space before it
    (byte-level BPE as in GPT-2) would see such words glued together, without any error; there each word after the first
    carries its space, which gives the very tokens of the running text.

    Of running text, a word is a piece of the pre-tokenizer (for BERT: split at spaces and punctuation). Tokenizers that
    do not split before merging (Llama, Gemma) put the whole text into one word; there, words end at white space, and
    a token belongs to the word of its first visible character.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int, target: bool = False) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._argument = "text_target" if target else "text"
        raw = self._encodings([" ".join(_PROBE)], split=False)[0]
        glued = self._encodings([list(_PROBE)], split=True)[0]
        spaced = self._encodings([_spaced(_PROBE)], split=True)[0]
        self._spaces_words = raw.ids != glued.ids and raw.ids == spaced.ids
        self._splits_text = len({word for word in raw.word_ids if word is not None}) > 1

    def align(self, sentences: Sequence[str] | Sequence[list[str]]) -> list[Alignment]:
        """Encode a batch of texts, or of word lists."""
        if isinstance(sentences[0], str):
            encodings = self._encodings(list(sentences), split=False)
            return [self._of_text(str(text), encoding) for text, encoding in zip(sentences, encodings, strict=True)]
        words = [_spaced(words) for words in sentences] if self._spaces_words else list(sentences)
        return [self._of_words(encoding) for encoding in self._encodings(words, split=True)]

    def _of_text(self, text: str, encoding: Encoding) -> Alignment:
        # Many tokenizers count the space before a word as part of its first token.
        spans = [(start + _leading_spaces(text[start:end]), end) for start, end in encoding.offsets]
        return _alignment(encoding, encoding.word_ids if self._splits_text else _white_space_words(text, spans), spans)

    def _of_words(self, encoding: Encoding) -> Alignment:
        spans = encoding.offsets
        if self._spaces_words:
            shifts = [1 if word else 0 for word in encoding.word_ids]
            spans = [(max(a - shift, 0), max(b - shift, 0)) for (a, b), shift in zip(spans, shifts, strict=True)]
        return _alignment(encoding, encoding.word_ids, spans)

    def _encodings(self, batch: list, split: bool) -> list[Encoding]:
        encoded = self._tokenizer(
            **{self._argument: batch},
            is_split_into_words=split,
            truncation=True,
            max_length=self._max_length,
            # A corpus may contain "[SEP]" as text: it must not become the control token.
            split_special_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return encoded.encodings


def _spaced(words: Sequence[str]) -> list[str]:
    return [word if index == 0 else f" {word}" for index, word in enumerate(words)]


def _alignment(encoding: Encoding, word_ids: Sequence[int | None], spans: Sequence[tuple[int, int]]) -> Alignment:
    special = [bool(flag) for flag in encoding.special_tokens_mask]
    return Alignment(
        ids=encoding.ids,
        words=[NOT_A_WORD if word is None or out else word for word, out in zip(word_ids, special, strict=True)],
        spans=[(-1, -1) if out else span for span, out in zip(spans, special, strict=True)],
        special=special,
        truncated=bool(encoding.overflowing),
    )


def _white_space_words(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    starts = np.array([match.start() for match in _WORD.finditer(text)])
    words = np.searchsorted(starts, [start for start, _ in spans], side="right") - 1
    return np.maximum(words, 0).tolist()


def _leading_spaces(piece: str) -> int:
    return len(piece) - len(piece.lstrip())
