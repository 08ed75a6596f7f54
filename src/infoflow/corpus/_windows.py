"""Windows of running text: consecutive sentences up to a number of tokens."""

import numpy as np

from infoflow.foundation import UserError


def windows(lengths: np.ndarray, documents: np.ndarray, budget: int) -> np.ndarray:
    """Rows of the consecutive sentences in each window: int64 (window, 2), the first and the one after the last.

    A window takes whole sentences up to `budget` tokens, and ends with its document at the latest; the next begins
    where it ends, so every sentence is in exactly one window. A sentence longer than the budget forms its own window
    (and is truncated when read). This is fairseq's break mode `complete`, without windows across documents.

    Args:
        lengths: Tokens of each sentence, without special ones, int (sentence,).
        documents: A number for each sentence, equal for consecutive sentences of one text (`Corpus.stretches`), int64
            (sentence,).
        budget: Maximum number of tokens of a window, without special ones.

    Raises:
        UserError: The budget is below 2: two sentences have at least one token each.

    >>> windows(np.array([3, 4, 2, 9, 1]), np.array([0, 0, 0, 0, 1]), budget=7).tolist()
    [[0, 2], [2, 3], [3, 4], [4, 5]]
    """
    if budget < 2:
        raise UserError(f"A window must fit two sentences: at least 2 tokens. Got {budget}.")
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    firsts = []
    for begin, end in text_bounds(documents).tolist():
        first = begin
        while first < end:
            firsts.append(first)
            fitting = int(ends.searchsorted(ends[first] + budget, side="right")) - 1
            first = min(max(fitting, first + 1), end)
    first = np.array(firsts, dtype=np.int64)
    return np.stack([first, np.append(first[1:], len(documents))[: len(first)]], axis=1)


def text_bounds(documents: np.ndarray) -> np.ndarray:
    """The rows of each text: int64 (text, 2), the first and the one after the last."""
    first = np.flatnonzero(np.diff(documents, prepend=documents[:1] - 1))
    return np.stack([first, np.append(first[1:], len(documents))[: len(first)]], axis=1)
