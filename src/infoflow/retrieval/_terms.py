"""The terms that a lexical index compares: a model's tokens, or words."""

import unicodedata
from collections.abc import Hashable, Iterable
from typing import Any

from infoflow.corpus import tokenizer_digest

from ._words import words_of

WORDS = "words-2"  # another name wherever other terms come of a text: an index of other terms is refused
"""The name of terms that are lower-cased words; those of a tokenizer have its digest."""


def terms_of(texts: Iterable[str], tokenizer: Any = None) -> list[list[Hashable]]:
    """Terms of each text: the tokenizer's ids without special tokens, or without one lower-cased words (NFKC).

    Words have their combining marks. Of scripts without spaces (Han, kana, Thai, Lao, Khmer, Myanmar) terms are
    overlapping pairs of characters, or the one character that stands alone.
    """
    if tokenizer is None:
        return [list(words_of(unicodedata.normalize("NFKC", text).lower(), "pairs")) for text in texts]
    given = list(texts)
    if not given:
        return []
    return [list(ids) for ids in tokenizer(given, add_special_tokens=False, split_special_tokens=True).input_ids]


def terms_name(tokenizer: Any = None) -> str:
    """What `terms_of` depends on."""
    return WORDS if tokenizer is None else tokenizer_digest(tokenizer)
