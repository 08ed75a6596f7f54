"""How well each token of a text is predicted, by its place."""

from typing import ClassVar

import numpy as np
import pandas as pd

from infoflow.flow import Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.heads import no_loss
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._token_losses import token_losses

SENTENCES = 2000

LOSS_BY_POSITION = TableSchema(
    name="loss_by_position",
    version=1,
    description="Mean loss of the first, second, ... token of a text: the next token of a causal LM and of a decoder "
    "that reads the reference, the hidden one of a masked LM.",
    columns=(
        Column(
            name="position",
            dtype="int64",
            unit="tokens",
            description="place of the predicted token among the ordinary ones of its text, from 1; the token that ends "
            "a text stands after its last",
        ),
        *estimate_columns(
            "nats per token",
            "mean loss of the tokens at that place",
            "mean loss of the same tokens by their frequency alone, counted in the training corpus where it is known",
            "predicted tokens",
        ),
    ),
)


class LossByPosition(Intervention):
    r"""\(L_p\): the mean loss of the p-th token, nats.

    Texts of different lengths stand behind early and late places; the baseline, the unigram loss of the same tokens,
    says how much of a difference lies in the tokens. Only real tokens count, so padding and batches change nothing.

    Args:
        sentences: So many at most, chosen by the hash of their text: the same at every checkpoint.

    Source: [@olsson2022context].
    """

    table: ClassVar[TableSchema] = LOSS_BY_POSITION

    def __init__(self, sentences: int | None = SENTENCES) -> None:
        self.sentences = checked_sentences(sentences)

    def refusal(self, model: Model) -> str | None:
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        found = token_losses(reader, options, self.sentences)
        if not len(found.losses):
            raise NothingToRead(f"no sentence of {reader.corpus.name} has a token to predict")
        longest = int(found.positions.max())
        place = found.blocks * longest + found.positions - 1
        sums = [
            np.bincount(place, weights, NUM_BLOCKS * longest).reshape(NUM_BLOCKS, longest)
            for weights in (found.losses, found.unigram, None)
        ]
        losses, unigram, counts = (one.astype(np.float64) for one in sums)
        rows = [
            {
                "position": position + 1,
                **ratio_estimate(
                    losses[:, position],
                    counts[:, position],
                    float(unigram[:, position].sum() / counts[:, position].sum()),
                    scale="positive",
                ),
            }
            for position in np.flatnonzero(counts.sum(axis=0)).tolist()
        ]
        return pd.DataFrame(rows, columns=self.table.column_names)


def checked_sentences(sentences: int | None) -> int | None:
    """A number of sentences, at least one, or None for all."""
    if sentences is not None and sentences < 1:
        raise UserError(f"sentences must be at least 1, or None for all. Got {sentences}.")
    return sentences
