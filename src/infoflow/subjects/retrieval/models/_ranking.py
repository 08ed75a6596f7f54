"""Ranking metrics: whether the relevant passages are found, and at what rank."""

from collections.abc import Collection, Sequence

import numpy as np

from infoflow.foundation import UserError

Ranked = Sequence[Sequence[int] | np.ndarray] | np.ndarray
Relevant = Sequence[Collection[int]]
NOTHING = -1
"""The id of an empty slot."""


def hit_at(ranked: Ranked, relevant: Relevant, k: int) -> np.ndarray:
    """Whether a relevant passage is among the first k: float64 (query,). Its mean is "recall@k" of REALM, DPR and FiD.

    Args:
        ranked: Ids of each query's passages, best first; −1 means none.
        relevant: Ids of the relevant passages of each query.
        k: Cutoff.

    Raises:
        UserError: k is below 1, the lengths differ, or a query has no relevant passage.
    """
    return (_found(ranked, relevant, k) > 0).astype(np.float64)


def recall_at(ranked: Ranked, relevant: Relevant, k: int) -> np.ndarray:
    """Share of the relevant passages among the first k: float64 (query,). Arguments and errors as in `hit_at`."""
    return _found(ranked, relevant, k) / np.array([len(set(map(int, one))) for one in relevant], dtype=np.float64)


def reciprocal_rank(ranked: Ranked, relevant: Relevant, k: int | None = None) -> np.ndarray:
    """1 / rank of the first relevant passage, 0 if none is among the first k (None: all): float64 (query,).

    Raises:
        UserError: As in `hit_at`.
    """
    _check(ranked, relevant, 1 if k is None else k)
    wanted = [set(map(int, one)) for one in relevant]
    ranks = [
        next((1 / rank for rank, id in enumerate(row[:k], start=1) if int(id) in right), 0.0)
        for row, right in zip(ranked, wanted, strict=True)
    ]
    return np.array(ranks, dtype=np.float64)


def _found(ranked: Ranked, relevant: Relevant, k: int) -> np.ndarray:
    _check(ranked, relevant, k)
    pairs = zip(ranked, relevant, strict=True)
    return np.array([len({int(id) for id in row[:k]} & set(map(int, right))) for row, right in pairs], dtype=np.float64)


def _check(ranked: Ranked, relevant: Relevant, k: int) -> None:
    if k < 1:
        raise UserError(f"k must be at least 1. Got {k}.")
    if len(ranked) != len(relevant):
        raise UserError(f"Each ranking needs its relevant passages. Got {len(ranked)} rankings and {len(relevant)}.")
    if any(len(one) == 0 or NOTHING in one for one in relevant):
        raise UserError(
            "Every query needs a relevant passage with an id of at least 0. Got a query without one.\n"
            "Leave it out, and report how many were left out."
        )
