"""Sentences as rows of one stack, and as padded tensors."""

from dataclasses import dataclass

import numpy as np
import torch

from infoflow.corpus import NOT_A_WORD
from infoflow.objectives import pad_arrays

from ._sample import NO_LABEL, Stream


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Row:
    """One sentence for one stack: its input and its prediction targets."""

    tokens: np.ndarray
    clean: np.ndarray  # the same before corruption
    labels: np.ndarray
    special: np.ndarray
    words: np.ndarray
    counted: np.ndarray  # all tokens, or those with the requested tag
    probes: np.ndarray  # positions whose states are worth sampling


def clean_row(
    tokens: np.ndarray, labels: np.ndarray, special: np.ndarray, words: np.ndarray, counted: np.ndarray | None = None
) -> Row:
    """A sentence as it is, or as a decoder reads it."""
    counted = np.ones(len(tokens), dtype=bool) if counted is None else counted
    return Row(
        tokens=tokens,
        clean=tokens,
        labels=labels,
        special=special,
        words=words,
        counted=counted,
        probes=np.flatnonzero(counted & ~special),
    )


def padded_stream(rows: list[Row], pad: int) -> Stream:
    """The rows as right-padded tensors."""
    lengths = np.array([len(row.tokens) for row in rows])
    position = np.arange(lengths.max())
    real = position < lengths[:, None]
    special = pad_arrays([row.special for row in rows], True)
    return Stream(
        input_ids=torch.from_numpy(pad_arrays([row.tokens for row in rows], pad)),
        real=torch.from_numpy(real),
        valid=torch.from_numpy(real & ~special.astype(bool)),
        counted=torch.from_numpy(pad_arrays([row.counted for row in rows], False).astype(bool)),
        labels=torch.from_numpy(pad_arrays([row.labels for row in rows], NO_LABEL)),
        position=torch.from_numpy(np.where(real, position, -1)),
        words=torch.from_numpy(pad_arrays([row.words for row in rows], NOT_A_WORD)),
    )


def ranks_of(counts: np.ndarray) -> np.ndarray:
    """The frequency rank of each type: 1 for the most frequent one, 0 for types that do not occur."""
    order = np.argsort(-counts, kind="stable")
    ranks = np.empty(len(counts), dtype=np.int64)
    ranks[order] = np.arange(1, len(counts) + 1)
    return np.where(counts > 0, ranks, 0)
