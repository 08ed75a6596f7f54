"""Hiding chosen tokens: 80 % become [MASK], 10 % a random token, 10 % stay."""

from typing import Literal

import numpy as np

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError

RandomIds = Literal["ordinary", "all", "corpus"]
"""Source of random tokens: ids of text, all ids, or the training text (with its frequencies)."""


def hide(
    tokens: np.ndarray,
    positions: np.ndarray,
    generator: np.random.Generator,
    vocabulary: Vocabulary,
    objective: str,
    *,
    mask_share: float = 0.8,
    random_share: float = 0.1,
    random_ids: RandomIds = "ordinary",
    together: np.ndarray | None = None,
) -> np.ndarray:
    """`tokens` with each of `positions` replaced by [MASK] or a random token, or kept.

    Args:
        tokens: int64 (token,).
        positions: Chosen positions, int64 (chosen,).
        generator: Draws first the fate of each position, then the random tokens.
        vocabulary: Provides [MASK].
        objective: Name for the message if there is no [MASK].
        mask_share: Share of the chosen that become [MASK].
        random_share: Share of the chosen that become a random token.
        random_ids: Source of the random tokens.
        together: int64 (chosen,), from 0: positions with the same number share their fate, as the tokens of a span do.

    Raises:
        UserError: The vocabulary has no [MASK], or lacks the counts that `random_ids` needs.
    """
    mask = mask_id(vocabulary, objective)
    num_fates = len(positions) if together is None else int(together.max(initial=-1)) + 1
    fate = generator.random(num_fates)
    fate = fate if together is None else fate[together]
    masked = fate < mask_share
    swapped = ~masked & (fate < mask_share + random_share)
    noisy = tokens.copy()
    noisy[positions[masked]] = mask
    if swapped.any():
        noisy[positions[swapped]] = random_tokens(int(swapped.sum()), generator, vocabulary, random_ids)
    return noisy


def random_tokens(
    num: int, generator: np.random.Generator, vocabulary: Vocabulary, random_ids: RandomIds = "ordinary"
) -> np.ndarray:
    """`num` token ids drawn independently, int64 (num,).

    Raises:
        UserError: `random_ids` needs the frequencies of the training text, and the vocabulary has none.
    """
    if random_ids == "all":
        return generator.integers(vocabulary.size, size=num)
    if random_ids == "ordinary":
        return vocabulary.ordinary[generator.integers(len(vocabulary.ordinary), size=num)]
    cumulative = vocabulary.cumulative_counts
    if cumulative is None:
        raise _uncounted()
    drawn = np.searchsorted(cumulative, generator.random(num) * cumulative[-1], side="right")
    return vocabulary.ordinary[drawn]


def text_counts(vocabulary: Vocabulary) -> np.ndarray:
    """How often each id occurs in the training text.

    Raises:
        UserError: The vocabulary has no counts.
    """
    if vocabulary.counts is None:
        raise _uncounted()
    return vocabulary.counts


def _uncounted() -> UserError:
    return UserError(
        "This objective draws tokens by their frequency in the training text, and the vocabulary has none.\n"
        "Give it with Vocabulary.with_counts(token_frequencies(encoded, size))."
    )


def mask_id(vocabulary: Vocabulary, objective: str) -> int:
    """The id of [MASK], for an objective of this name.

    Raises:
        UserError: The tokenizer has none.
    """
    if vocabulary.mask is None:
        raise UserError(f"{objective} needs a mask token. Got a tokenizer without one: set its mask_token.")
    return vocabulary.mask
