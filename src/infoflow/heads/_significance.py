"""Tests of differences between two variants of a model, with corrections for multiple tests."""

# K block, M test, P permutation

import numpy as np
from jaxtyping import Bool, Float

from infoflow.foundation import UserError, stream

PERMUTATIONS = 20_000
"""Smallest p is 1/20,001: small enough to survive a correction for a few hundred heads."""
_CHUNK = 64


def sign_flip_p(differences: Float[np.ndarray, "test block"], seed: int = 0) -> Float[np.ndarray, " test"]:
    r"""Two-sided p-value of each row's sum under random signs of its blocks.

    $$ p = \frac{1 + \#\{ |\sum_k s_k d_k| \ge |\sum_k d_k| \}}{1 + P}, \qquad s_k = \pm 1 $$

    $d_k$ is the paired difference summed over the sentences of bootstrap block k. Under the null hypothesis that a
    change only adds noise, differences are symmetric about 0. The same P = 20,000 signs serve all rows.
    """
    signs = (
        stream("sign-flips", seed).integers(0, 2, size=(PERMUTATIONS, differences.shape[1]), dtype=np.int8) * 2.0 - 1
    )
    # A different order of summation changes the last digit, and a row of zeros must get p = 1.
    observed = np.abs(differences.sum(axis=1)) * (1 - 1e-12)
    larger = np.zeros(len(differences))
    for start in range(0, len(differences), _CHUNK):
        rows = slice(start, start + _CHUNK)
        larger[rows] = (np.abs(signs @ differences[rows].T) >= observed[rows]).sum(axis=0)
    return (1 + larger) / (1 + PERMUTATIONS)


def correct(p: Float[np.ndarray, " test"], method: str = "holm") -> Float[np.ndarray, " test"]:
    """P-values corrected for multiple tests.

    `"holm"` bounds the chance of any false discovery, `"bh"` (Benjamini–Hochberg) the expected share of false ones
    among the discoveries, `"none"` nothing. NaN stays and does not count.

    Raises:
        UserError: The method is unknown.

    Source: [@holm1979], [@benjamini1995].
    """
    if method not in ("holm", "bh", "none"):
        raise UserError(f"correction must be holm, bh or none. Got {method}.")
    corrected, known = np.array(p, dtype=np.float64), ~np.isnan(p)
    if method == "none" or not known.any():
        return corrected
    given = corrected[known]
    order, num = np.argsort(given, kind="stable"), len(given)
    if method == "holm":
        adjusted = np.maximum.accumulate(given[order] * (num - np.arange(num)))
    else:
        adjusted = np.minimum.accumulate((given[order] * num / (1 + np.arange(num)))[::-1])[::-1]
    result = np.empty(num)
    result[order] = np.minimum(adjusted, 1.0)
    corrected[known] = result
    return corrected


def paired_bootstrap_p(replicates: Float[np.ndarray, "test draw"]) -> Float[np.ndarray, " test"]:
    """Two-sided p-value of differences from their bootstrap replicates: twice the share on the other side of 0.

    Source: [@koehn2004], whose test is one-sided.
    """
    draws = replicates.shape[1]
    below: Bool[np.ndarray, "..."] = replicates <= 0
    tail = np.minimum(below.sum(axis=1), (replicates >= 0).sum(axis=1))
    return np.minimum(2 * (1 + tail) / (1 + draws), 1.0)
