"""The terms of a lexical index: a model's tokens, or words."""

from collections.abc import Hashable, Iterable
from typing import Any

from infoflow.corpus import tokenizer_digest
from infoflow.foundation import comparable, words_of

WORDS = "words-3"  # change the name when terms change, so that an index of other terms is refused
"""Name of the terms from lower-cased words; terms of a tokenizer have its digest."""


def terms_of(texts: Iterable[str], tokenizer: Any = None) -> list[list[Hashable]]:
    """Terms of each text: the tokenizer's ids without special tokens, or lower-cased words (NFKC) without a tokenizer.

    Words include their combining marks. In scripts without spaces (Han, kana, Thai, Khmer, Tibetan, …) terms are
    overlapping character pairs, or a single isolated character.
    """
    if tokenizer is None:
        return [list(words_of(comparable(text).lower(), "pairs")) for text in texts]
    given = list(texts)
    if not given:
        return []
    return [list(ids) for ids in tokenizer(given, add_special_tokens=False, split_special_tokens=True).input_ids]


def terms_name(tokenizer: Any = None) -> str:
    """Identifies the definition of `terms_of`."""
    return WORDS if tokenizer is None else tokenizer_digest(tokenizer)
