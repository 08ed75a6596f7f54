"""Batches of similar length under a token budget, which avoids padding."""

import numpy as np

from infoflow.foundation import UserError


def length_batches(lengths: np.ndarray, token_budget: int, max_sentences: int | None = None) -> list[np.ndarray]:
    """Rows sorted by length (ties by row) and cut into batches of padded size ≤ `token_budget`, shortest first.

    The padded size of a batch is its number of rows times its longest length. A row longer than the budget forms its
    own batch. Deterministic; every row is in exactly one batch.

    Raises:
        UserError: A budget below 1.
    """
    if token_budget < 1 or (max_sentences is not None and max_sentences < 1):
        raise UserError(f"token_budget and max_sentences must be at least 1. Got {token_budget} and {max_sentences}.")
    order = np.argsort(lengths, kind="stable")
    batches: list[np.ndarray] = []
    start = 0
    sorted_lengths = np.asarray(lengths)[order].tolist()
    for end, length in enumerate(sorted_lengths):
        size = end - start + 1
        if end > start and (size * length > token_budget or (max_sentences is not None and size > max_sentences)):
            batches.append(order[start:end])
            start = end
    if len(order):
        batches.append(order[start:])
    return batches
