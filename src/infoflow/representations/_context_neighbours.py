"""Whether a state's neighbours have the same token before or after them."""

from typing import ClassVar

import pandas as pd

from infoflow.flow import TokenSample
from infoflow.results import Column, TableSchema, estimate_columns

from ._token_pools import SETTINGS, AbstractTokenPools

SIDES = ("left", "right")

CONTEXT_NEIGHBOURS = TableSchema(
    name="context_neighbours",
    version=3,
    description="Fraction of the nearest occurrences of the same token that have the same token before or after them.",
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings"),
        Column(name="side", dtype="string", unit="", description="left: the token before; right: the token after"),
        *estimate_columns(
            "fraction",
            "fraction of neighbours with the same token on that side",
            "random neighbours: Σp² within a token, averaged in the same way",
        ),
        *SETTINGS,
    ),
)


class ContextNeighbours(AbstractTokenPools):
    """How much a layer keeps of the tokens next to a token: `within_token_agreement` with these as labels.

    Occurrences at the edge of their sentence have no token on that side and are left out there.
    Arguments are those of `AbstractTokenPools`.

    Source: [@voita2019evolution], k = 50.
    """

    table: ClassVar[TableSchema] = CONTEXT_NEIGHBOURS

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        rows = [
            {**self.row(sample, layer, scores[side]), "side": side}
            for layer, scores in enumerate(self.scores(sample))
            for side in SIDES
            if side in scores
        ]
        return self.frame(sample, rows, "the token beside them")
