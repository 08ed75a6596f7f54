"""What corrupting text and building a model need to know of a tokenizer."""

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from infoflow.foundation import UserError, read_only


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Size and special ids of a tokenizer, without the tokenizer."""

    size: int  # number of ids, specials included
    pad: int
    start: int  # the id before a sentence: [CLS]
    end: int  # the id after a sentence: [SEP]
    mask: int | None = None  # None: no masked objective
    special: tuple[int, ...] = ()  # every id that stands for no text, the four above included
    sentinels: tuple[int, ...] = ()  # <extra_id_0>, <extra_id_1>, ...: each stands for a span that was taken out
    full_stops: tuple[int, ...] = ()  # ids that end a sentence: . ! ?
    continues: np.ndarray | None = field(default=None, compare=False, repr=False)
    """Bool (size,): whether a piece goes on with the word of the piece before it; None: every piece is a word."""
    counts: np.ndarray | None = field(default=None, compare=False, repr=False)
    """int64 (size,): how often each id occurs in the training text; None: not counted."""

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
        return cls(
            size=len(tokenizer),
            pad=tokenizer.pad_token_id,
            start=start,
            end=end,
            mask=tokenizer.mask_token_id,
            special=tuple(sorted({*tokenizer.all_special_ids})),
            sentinels=_sentinels(pieces),
            full_stops=tuple(sorted(id for piece, id in pieces.items() if piece.lstrip("▁Ġ#") in _FULL_STOPS)),
            continues=_continues(pieces, len(tokenizer), tokenizer.all_special_ids),
        )

    def with_counts(self, counts: np.ndarray) -> "Vocabulary":
        """The same vocabulary with the frequency of each id in the training text, int64 (size,)."""
        return replace(self, counts=counts)

    def word_starts(self, tokens: np.ndarray) -> np.ndarray:
        """Bool (token,): whether a token begins a word; a special token is a word of its own."""
        if self.continues is None or len(tokens) == 0:
            return np.ones(len(tokens), dtype=bool)
        special = self.is_special[tokens]
        starts = ~self.continues[tokens] | special
        starts[1:] |= special[:-1]
        starts[0] = True
        return starts

    @cached_property
    def ordinary(self) -> np.ndarray:
        """Ids that stand for text, ascending."""
        return read_only(np.flatnonzero(~self.is_special))

    @cached_property
    def is_special(self) -> np.ndarray:
        """Bool (size,): whether an id stands for no text."""
        flags = np.zeros(self.size, dtype=bool)
        flags[list(self.special)] = True
        return read_only(flags)

    @cached_property
    def cumulative_counts(self) -> np.ndarray | None:
        """int64 (ordinary,): how often the ordinary ids up to each occur; None: not counted."""
        return None if self.counts is None else read_only(np.cumsum(self.counts[self.ordinary]))


_FULL_STOPS = {".", "!", "?"}
_SENTINEL = re.compile(r"<extra_id_(\d+)>")


def sentinel_names(num: int) -> list[str]:
    """The names of sentinel tokens, `<extra_id_0>` first."""
    return [f"<extra_id_{index}>" for index in range(num)]


def _sentinels(pieces: dict[str, int]) -> tuple[int, ...]:
    numbered = {int(found[1]): id for piece, id in pieces.items() if (found := _SENTINEL.fullmatch(piece))}
    return tuple(numbered[index] for index in sorted(numbered))


def _continues(pieces: dict[str, int], size: int, special: list[int]) -> np.ndarray | None:
    """Whether each piece continues a word, by the mark of its tokenizer: `##` at a continuation, `▁` or `Ġ` at a start.

    None where no piece carries one of these marks. A sign after a word (`,`) is a word of its own.
    """
    marks = [mark for mark in ("##", "▁", "Ġ") if any(piece.startswith(mark) and piece != mark for piece in pieces)]
    if not marks:
        return None
    flags = np.zeros(size, dtype=bool)
    for piece, id in pieces.items():
        if "##" in marks:
            flags[id] = piece.startswith("##")
        else:
            flags[id] = not piece.startswith(marks[0]) and any(sign.isalnum() for sign in piece)
    flags[special] = False
    return read_only(flags)


def _first(*ids: int | None) -> int | None:
    return next((id for id in ids if id is not None), None)
