"""Deciles of a vocabulary by the frequency of its types in a text."""

import numpy as np
from jaxtyping import Int

NUM_DECILES = 10
"""Number of groups of types by frequency rank."""
NEVER_SEEN = -1


def frequency_deciles(counts: Int[np.ndarray, " V"]) -> Int[np.ndarray, " V"]:
    r"""The decile of each type, 0 the most frequent; −1 if a type never occurs.

    $$ d(w) = \Big\lfloor \frac{10}{S} \Big( |\{v : c(v) > c(w)\}| + \tfrac12 |\{v : c(v) = c(w)\}| \Big) \Big\rfloor $$

    over the S types that occur. Types with equal counts stay together, so a decile may be empty.

    >>> frequency_deciles(np.array([9, 0, 4, 1, 1]))
    array([ 1, -1,  3,  7,  7])
    """
    found = np.full(len(counts), NEVER_SEEN, dtype=np.int64)
    seen = counts[counts > 0]
    _, place, equal = np.unique(-seen, return_inverse=True, return_counts=True)
    # Twice the middle rank, for integer arithmetic.
    middle = 2 * (np.cumsum(equal) - equal) + equal
    found[counts > 0] = (NUM_DECILES * middle // (2 * max(len(seen), 1)))[place]
    return found
