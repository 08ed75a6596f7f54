"""Tokenizer data for corrupting text and building models."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from infoflow.foundation import UserError, is_unspaced, read_only, writes_no_spaces

from ._sentence_ends import STOPS


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Size and special ids of a tokenizer, without the tokenizer."""

    size: int  # number of ids, specials included
    pad: int
    start: int  # the id before a sentence: [CLS]
    end: int  # the id after a sentence: [SEP]
    mask: int | None = None  # None: no masked objective
    special: tuple[int, ...] = ()  # every id without text, the four above included
    sentinels: tuple[int, ...] = ()  # <extra_id_0>, <extra_id_1>, ...: each replaces a removed span
    full_stops: tuple[int, ...] = ()  # ids that end a sentence: . ! ? and those of other scripts
    continues: np.ndarray | None = field(default=None, compare=False, repr=False)
    """Bool (size,): whether a piece continues the word of the previous piece; None: every piece is a word."""
    counts: np.ndarray | None = field(default=None, compare=False, repr=False)
    """int64 (size,): count of each id in the training text; None: not counted."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> "Vocabulary":
        """The vocabulary of a Hugging Face tokenizer with [CLS] x [SEP] or <s> x </s> around its sentences."""
        start = _first(tokenizer.cls_token_id, tokenizer.bos_token_id)
        end = _first(tokenizer.sep_token_id, tokenizer.eos_token_id)
        if start is None or end is None or tokenizer.pad_token_id is None:
            raise UserError(
                "The tokenizer must define a padding token and tokens before and after a sentence. "
                f"Got pad={tokenizer.pad_token_id}, start={start}, end={end}.\n"
                "Train one with infoflow, or add the missing special tokens to it."
            )
        pieces = tokenizer.get_vocab()
        texts = _texts(pieces)
        return cls(
            size=len(tokenizer),
            pad=tokenizer.pad_token_id,
            start=start,
            end=end,
            mask=tokenizer.mask_token_id,
            special=tuple(sorted({*tokenizer.all_special_ids})),
            sentinels=_sentinels(pieces),
            full_stops=tuple(
                sorted(
                    id for piece, id in pieces.items() if texts[piece].decode(errors="ignore").lstrip("▁# ") in STOPS
                )
            ),
            continues=_continues(pieces, len(tokenizer), tokenizer.all_special_ids),
        )

    def with_counts(self, counts: np.ndarray) -> "Vocabulary":
        """The same vocabulary with the frequency of each id in the training text, int64 (size,)."""
        return replace(self, counts=counts)

    def word_starts(self, tokens: np.ndarray) -> np.ndarray:
        """Bool (token,): whether a token begins a word; a special token is its own word."""
        if self.continues is None or len(tokens) == 0:
            return np.ones(len(tokens), dtype=bool)
        special = self.is_special[tokens]
        starts = ~self.continues[tokens] | special
        starts[1:] |= special[:-1]
        starts[0] = True
        return starts

    @cached_property
    def ordinary(self) -> np.ndarray:
        """Ids of text, ascending."""
        return read_only(np.flatnonzero(~self.is_special))

    @cached_property
    def is_special(self) -> np.ndarray:
        """Bool (size,): mask of special token ids."""
        flags = np.zeros(self.size, dtype=bool)
        flags[list(self.special)] = True
        return read_only(flags)

    @cached_property
    def cumulative_counts(self) -> np.ndarray | None:
        """int64 (ordinary,): cumulative counts of the ordinary ids; None: not counted."""
        return None if self.counts is None else read_only(np.cumsum(self.counts[self.ordinary]))


_PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))  # bytes that GPT-2's vocabulary writes as such
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(0x100 + place): byte for place, byte in enumerate(_OTHERS)}
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_SENTINEL = re.compile(r"<extra_id_(\d+)>")


def sentinel_names(num: int) -> list[str]:
    """The names of sentinel tokens, `<extra_id_0>` first."""
    return [f"<extra_id_{index}>" for index in range(num)]


def _sentinels(pieces: dict[str, int]) -> tuple[int, ...]:
    numbered = {int(found[1]): id for piece, id in pieces.items() if (found := _SENTINEL.fullmatch(piece))}
    return tuple(numbered[index] for index in sorted(numbered))


def _continues(pieces: dict[str, int], size: int, special: list[int]) -> np.ndarray | None:
    """Whether each piece continues a word, from its tokenizer's marks: `##` at a continuation, `▁` or `Ġ` at a start.

    None if no piece has such a mark. A sign after a word (`,`) is its own word, as is a piece that begins with a
    character of a script without spaces.
    """
    marks = [mark for mark in ("##", "▁", "Ġ") if any(piece.startswith(mark) and piece != mark for piece in pieces)]
    if not marks:
        return None
    flags, texts = np.zeros(size, dtype=bool), _texts(pieces)
    for piece, id in pieces.items():
        if "##" in marks:
            flags[id] = piece.startswith("##")
        else:
            flags[id] = not piece.startswith(marks[0]) and _is_inside(texts[piece])
    flags[special] = False
    return read_only(flags)


def _texts(pieces: Iterable[str]) -> dict[str, bytes]:
    """The text of each piece in UTF-8, which may be part of a character.

    Byte-level vocabularies write each byte as a character (`Ġ` is the space), others write single bytes as `<0xE6>`.
    """
    by_bytes = any(piece.startswith("Ġ") for piece in pieces) and not any(piece.startswith("▁") for piece in pieces)
    return {piece: _text_of(piece, by_bytes) for piece in pieces}


def _text_of(piece: str, by_bytes: bool) -> bytes:
    if found := _BYTE.fullmatch(piece):
        return bytes([int(found[1], 16)])
    return bytes(map(_BYTES.__getitem__, piece)) if by_bytes and _BYTES.keys() >= set(piece) else piece.encode()


def _is_inside(text: bytes) -> bool:
    """Whether a piece without a start mark continues a word.

    True for letters and combining marks, except characters of scripts without spaces, which are words themselves, and
    for the later bytes of a character.
    """
    if not text or text[0] in range(0x80, 0xC0):
        return bool(text)
    missing = (1 + (text[0] >= 0xC0) + (text[0] >= 0xE0) + (text[0] >= 0xF0)) - len(text)
    if missing > 0:  # of a character's first bytes, the first and the last character that have them
        ends = [(text + end * missing).decode(errors="ignore") for end in (b"\x80", b"\xbf")]
        return not all(map(writes_no_spaces, ends))
    piece = text.decode(errors="ignore")
    return not is_unspaced(piece) and any(
        sign.isalnum() or unicodedata.category(sign).startswith("M") for sign in piece
    )


def _first(*ids: int | None) -> int | None:
    return next((id for id in ids if id is not None), None)
