"""Tokens of texts in which special tokens written by an author count as text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from infoflow.corpus import Vocabulary


def plain_tokens(tokenizer: Any, vocabulary: Vocabulary, texts: Sequence[str]) -> tuple[list[np.ndarray], int]:
    """Tokens of each text without special ones, int64, and how many special tokens the texts contained.

    If a tokenizer cannot split such a word and returns its id, it becomes the unknown token.
    """
    if not texts:
        return [], 0
    unknown = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else vocabulary.pad
    rows = tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False).input_ids
    given = [np.array(row, dtype=np.int64) for row in rows]
    special = [vocabulary.is_special[row] & (row != unknown) for row in given]
    plain = [np.where(written, unknown, row) for row, written in zip(given, special, strict=True)]
    return plain, sum(int(written.sum()) for written in special)
