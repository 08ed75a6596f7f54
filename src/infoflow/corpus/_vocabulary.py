"""What corrupting text and building a model need to know of a tokenizer."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from infoflow.foundation import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    """Size and special ids of a tokenizer, without the tokenizer."""

    size: int  # number of ids, specials included
    pad: int
    start: int  # the id before a sentence: [CLS]
    end: int  # the id after a sentence: [SEP]
    mask: int | None = None  # None: no masked objective
    special: tuple[int, ...] = ()  # every id that stands for no text, the four above included

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
        return cls(
            size=len(tokenizer),
            pad=tokenizer.pad_token_id,
            start=start,
            end=end,
            mask=tokenizer.mask_token_id,
            special=tuple(sorted({*tokenizer.all_special_ids})),
        )

    @property
    def ordinary(self) -> np.ndarray:
        """Ids that stand for text, ascending."""
        return _ordinary(self.size, self.special)

    @property
    def is_special(self) -> np.ndarray:
        """Bool (size,): whether an id stands for no text."""
        return _is_special(self.size, self.special)


def _first(*ids: int | None) -> int | None:
    return next((id for id in ids if id is not None), None)


@cache
def _is_special(size: int, special: tuple[int, ...]) -> np.ndarray:
    flags = np.zeros(size, dtype=bool)
    flags[list(special)] = True
    flags.flags.writeable = False  # shared by every caller
    return flags


@cache
def _ordinary(size: int, special: tuple[int, ...]) -> np.ndarray:
    ids = np.flatnonzero(~_is_special(size, special))
    ids.flags.writeable = False
    return ids
