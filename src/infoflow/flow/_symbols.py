"""Finds the tokens that are punctuation."""

import unicodedata

import numpy as np
from transformers import PreTrainedTokenizerBase

_LETTERS_MARKS_DIGITS = "LMN"
_PART_OF_CHARACTER = "\ufffd"


def symbol_ids(tokenizer: PreTrainedTokenizerBase, ids: np.ndarray) -> tuple[int, ...]:
    """Those of `ids` whose text has neither letter nor digit.

    A piece of a multi-byte character counts as a letter, since its text is unknown.
    """
    texts = tokenizer.batch_decode([[index] for index in ids.tolist()], clean_up_tokenization_spaces=False)
    return tuple(index for index, text in zip(ids.tolist(), texts, strict=True) if not any(map(_is_part, text)))


def _is_part(character: str) -> bool:
    """Whether the character can be part of a word."""
    return character == _PART_OF_CHARACTER or unicodedata.category(character)[0] in _LETTERS_MARKS_DIGITS
