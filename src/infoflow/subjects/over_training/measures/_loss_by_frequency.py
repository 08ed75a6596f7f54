"""The loss of tokens, by their frequency in the training text."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from infoflow.flow import Reader
from infoflow.foundation import NUM_BLOCKS
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._counted import counted_ngrams
from ._frequency_deciles import frequency_deciles
from ._loss_measure import AbstractLossMeasure
from ._token_losses import TokenLosses

LOSS_BY_FREQUENCY = TableSchema(
    name="loss_by_frequency",
    version=1,
    description="Mean loss of frequent and rare tokens, by decile of the types in the counted text.",
    light=True,
    columns=(
        Column(
            name="decile",
            dtype="int64",
            unit="",
            description="tenth of the types by their number in the counted text, from 0, the most frequent; -1: types "
            "that never occur in it",
        ),
        Column(name="corpus", dtype="string", unit="", description="where tokens were counted"),
        Column(name="types", dtype="int64", unit="types", description="of the decile, among the predicted tokens"),
        Column(
            name="log_frequency",
            dtype="float64",
            unit="ln of a share",
            description="mean over these types of ln((n + 1/2) / (N + V/2)): n times among N counted tokens, V types",
        ),
        *estimate_columns(
            "nats per token",
            "mean loss of the decile's tokens",
            "mean loss of the same tokens by their frequency alone",
            "predicted tokens",
        ),
    ),
)


class LossByFrequency(AbstractLossMeasure):
    r"""The mean loss of tokens by `frequency_deciles` of their types, nats.

    Counts come from the training corpus that the caller names, else from the measured one, so that the deciles are the
    same at every checkpoint. The baseline is each decile's own unigram loss: only the improvement on it was learned
    from context.

    Args:
        sentences: At most this many, chosen by a hash of their text: the same at every checkpoint.

    Source: [@chang2022].
    """

    table: ClassVar[TableSchema] = LOSS_BY_FREQUENCY

    def rows(self, reader: Reader, found: TokenLosses) -> Iterator[dict[str, Any]]:
        """A row for each decile with a predicted token."""
        model = counted_ngrams(reader, 1, found.types)
        deciles = frequency_deciles(model.counts)
        of_tokens = deciles[found.labels]
        for decile in np.unique(of_tokens).tolist():
            at = of_tokens == decile
            types = np.unique(found.labels[at])
            losses, unigram, counts = (
                np.bincount(found.blocks[at], weights, NUM_BLOCKS).astype(np.float64)
                for weights in (found.losses[at], found.unigram[at], None)
            )
            numbers = ratio_estimate(losses, counts, float(unigram.sum() / counts.sum()), scale="positive")
            named = {"decile": decile, "corpus": reader.counted.name, "types": len(types)}
            yield {**named, "log_frequency": float(np.log(model.unigram[types]).mean()), **numbers}
