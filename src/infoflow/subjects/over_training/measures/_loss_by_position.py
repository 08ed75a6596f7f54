"""The loss of each token of a text, by its position."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from infoflow.flow import Reader
from infoflow.foundation import NUM_BLOCKS
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._loss_measure import AbstractLossMeasure
from ._token_losses import TokenLosses

LOSS_BY_POSITION = TableSchema(
    name="loss_by_position",
    version=1,
    description="Mean loss of the first, second, ... token of a text: the next token of a causal LM and of a decoder "
    "that reads the reference, the hidden one of a masked LM.",
    light=True,
    columns=(
        Column(
            name="position",
            dtype="int64",
            unit="tokens",
            description="position of the predicted token among the ordinary tokens of its text, from 1; the "
            "end-of-text "
            "token comes after the last",
        ),
        *estimate_columns(
            "nats per token",
            "mean loss of the tokens at that place",
            "mean loss of the same tokens by their frequency alone, counted in the training corpus where it is known",
            "predicted tokens",
        ),
    ),
)


class LossByPosition(AbstractLossMeasure):
    r"""\(L_p\): the mean loss of the p-th token, nats.

    Early and late positions come from texts of different lengths; the baseline, the unigram loss of the same tokens,
    shows how much of a difference is due to the tokens. Only real tokens count, so padding and batches change nothing.

    Args:
        sentences: At most this many, chosen by a hash of their text: the same at every checkpoint.

    Source: [@olsson2022context].
    """

    table: ClassVar[TableSchema] = LOSS_BY_POSITION

    def rows(self, reader: Reader, found: TokenLosses) -> Iterator[dict[str, Any]]:
        """A row for each position with a predicted token."""
        longest = int(found.positions.max())
        place = found.blocks * longest + found.positions - 1
        sums = [
            np.bincount(place, weights, NUM_BLOCKS * longest).reshape(NUM_BLOCKS, longest)
            for weights in (found.losses, found.unigram, None)
        ]
        losses, unigram, counts = (one.astype(np.float64) for one in sums)
        for position in np.flatnonzero(counts.sum(axis=0)).tolist():
            guessed = float(unigram[:, position].sum() / counts[:, position].sum())
            numbers = ratio_estimate(losses[:, position], counts[:, position], guessed, scale="positive")
            yield {"position": position + 1, **numbers}
