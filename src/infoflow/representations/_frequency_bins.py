"""Bins of tokens by frequency rank, with equal numbers of occurrences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from infoflow.foundation import UserError, as_written, current_display
from infoflow.results import Column

from ._pwcca import LEAST_PER_DIMENSION, ROWS_PER_DIMENSION, warn_few_rows

RANK_EDGES = (1, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
"""The published bins: half-open ranges of rank among the training tokens, 1 = most frequent."""
GROUPS = 16
"""Number of groups of bootstrap blocks that are left out in turn.

Every bin has its own decompositions, and 64 groups take four times as long. Over 40 draws of 1000 tokens in 32
dimensions the standard deviation of the replicates was 1.19 times the true one with 16 groups, 1.43 times with 64, and
varied by 18 % and 12 %.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualBins:
    """The compared bins, and their common number of occurrences."""

    bins: tuple[int, ...]
    size: int


def check_bins(per_bin: int, edges: Sequence[int]) -> None:
    """Refuse bins that cannot be filled.

    Raises:
        UserError: `edges` do not rise from 1 or more, or `per_bin` is not positive.
    """
    if len(edges) < 2 or edges[0] < 1 or any(low >= high for low, high in pairwise(edges)):
        raise UserError(
            f"edges must be at least two rising frequency ranks, from 1 (the most frequent token). "
            f"Got {as_written(list(edges))}."
        )
    if per_bin < 1:
        raise UserError(f"per_bin must be at least 1, better 20 per dimension of the states. Got {per_bin}.")


def equal_bins(counts: np.ndarray, edges: Sequence[int], width: int, per_bin: int) -> EqualBins:
    """The bins with enough occurrences, and the number that each of them contributes.

    PWCCA falls with the number of rows, so all bins get the same: `per_bin`, or that of the scarcest bin that is kept.
    A bin is kept with at least 10 occurrences per dimension. If fewer than two bins have that, bins with more than 2
    are kept, with a warning that all distances are biased towards 0. A note lists the bins that are left out.
    """
    wanted = min(per_bin, ROWS_PER_DIMENSION * width)
    enough = np.flatnonzero(counts >= wanted)
    if len(enough) < 2:
        enough = np.flatnonzero(counts > LEAST_PER_DIMENSION * width)
    size = int(min(per_bin, counts[enough].min())) if len(enough) else 0
    left_out = [int(index) for index in np.flatnonzero(counts) if index not in enough]
    if left_out:
        names = ", ".join(f"{edges[index]}–{edges[index + 1]} ({counts[index]:,} occurrences)" for index in left_out)
        current_display().note(f"Left out by frequency rank, with fewer than {wanted:,} occurrences: {names}.")
    if len(enough):
        warn_few_rows(size, width)
    return EqualBins(bins=tuple(int(index) for index in enough), size=size)


def bin_columns() -> tuple[Column, ...]:
    """The key columns of a bin."""
    return (
        Column(name="bin", dtype="int64", unit="", description="frequency bin, from 0 (the most frequent tokens)"),
        Column(name="rank_low", dtype="int64", unit="rank", description="lowest frequency rank in it; 1 = top"),
        Column(name="rank_high", dtype="int64", unit="rank", description="the rank at which the next bin begins"),
    )


def bin_keys(edges: Sequence[int], index: int) -> dict[str, Any]:
    """The values of those columns."""
    return {"bin": index, "rank_low": edges[index], "rank_high": edges[index + 1]}
