"""Average similarity from samples of pairs, as published code estimates it; `average_similarity` is exact."""

import math

import numpy as np
import torch
from jaxtyping import Float

from infoflow.foundation import UserError, stream

from ._similarity import cosine_units, mean_cosine
from ._views import Matrix, as_view

_BATCH_SHARE, _VARIANCE, _CHECKS = 0.001, 0.001, 10


def batch_means_similarity(x: Matrix, seed: int = 0) -> float:
    r"""Average similarity by the method of batch means.

    $$ \frac1m \sum_{b=1}^m \mathrm{SelfSim}(B_b) $$

    Batches of max(2, .001 n) rows are drawn without replacement until the variance of their values (with $m - 1$
    below) has been under .001 for more than ten batches in a row, or the rows run out.

    Args:
        x: (occurrence, width), float32 or float64; computed in float64.
        seed: Of the order of rows.

    Returns:
        Similarity in [−1, 1]; NaN for fewer than two non-zero vectors.

    Source: [@vazquez2021], the constants of their published code.
    """
    units = cosine_units(as_view(x, "x", least_rows=0))
    size = max(2, round(_BATCH_SHARE * len(units)))
    order = torch.from_numpy(stream("batch-means", seed).permutation(len(units)))
    batches = units[order[: len(units) // size * size]].view(-1, size, units.shape[1])
    values = mean_cosine(batches.sum(1), size).numpy()
    return float(values[: _stop(values)].mean()) if len(values) else math.nan


def _stop(values: Float[np.ndarray, " batch"]) -> int:
    """After how many batches their variance has been small for more than `_CHECKS` checks in a row."""
    numbers = np.arange(1, len(values) + 1)
    # A variance less the square of a mean would cancel, but for values within one of each other.
    squares = np.cumsum((values - values[0]) ** 2) - np.cumsum(values - values[0]) ** 2 / numbers
    stable = np.concatenate([[False], squares[1:] / (numbers[1:] - 1) < _VARIANCE])
    in_a_row = numbers - np.maximum.accumulate(np.where(stable, 0, numbers))
    return int(np.argmax(in_a_row > _CHECKS)) + 1 if (in_a_row > _CHECKS).any() else len(values)


def random_pairs_similarity(x: Matrix, pairs: int = 1000, seed: int = 0) -> float:
    """Average similarity of random pairs of rows, drawn with replacement: a row may meet itself.

    So its expectation is that of `average_similarity` moved towards 1 by one part in n.

    Args:
        x: (occurrence, width), float32 or float64; computed in float64.
        pairs: Number of pairs.
        seed: Of the pairs.

    Returns:
        Similarity in [−1, 1]; NaN where all vectors are zero.

    Source: [@ethayarajh2019], their published code.
    """
    if pairs < 1:
        raise UserError(f"pairs must be at least 1. Got {pairs}.")
    units = cosine_units(as_view(x, "x", least_rows=0))
    if len(units) == 0:
        return math.nan
    first, second = torch.from_numpy(stream("random-pairs", seed).integers(0, len(units), (2, pairs)))
    return float((units[first] * units[second]).sum(1).mean())
