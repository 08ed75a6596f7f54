"""Selects a head or layer on one half of the sentences and reports its number on the other half.

A maximum of many is partly due to chance, so a number reported on the sentences that selected it is too large. Heads
and layers are selected seed by seed, by the estimate on the first half, and followed through the replicates.
"""

# R bootstrap replicates, N heads or layers

import numpy as np

from infoflow.foundation import on_halves, replicate_weights

CHOSEN = (
    "chosen on one half of the sentences and reported on the other, where a true number at the threshold passes in "
    "2.5 % of samples"
)
"""Describes how a statistic selects its heads."""


def held_out(numbers_RN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimates on the first half of the sentences, (N,), and on the second half with replicates, (1 + R, N).

    If the replicates are not those of sentence blocks, both come from all sentences, since halves are unknown.
    """
    value_N, finite_N = numbers_RN[0], np.isfinite(numbers_RN[0])
    halves = on_halves(value_N, list(numbers_RN[1:].T))
    if np.isnan(halves.first[finite_N]).any() or not finite_N.any():
        return value_N, numbers_RN
    moves_RN = (replicate_weights() - 1) @ np.nan_to_num(halves.effects).T
    return halves.first, np.concatenate([halves.second[None], halves.second + moves_RN])


def largest(numbers_RN: np.ndarray) -> np.ndarray:
    """The second-half number of the column that is largest on the first half, (1 + R, 1); NaN without columns."""
    if not np.isfinite(numbers_RN[:1]).any():
        return np.full((len(numbers_RN), 1), np.nan)
    first_N, second_RN = held_out(numbers_RN)
    return second_RN[:, [int(np.nanargmax(first_N))]]
