"""Whether a state's neighbours have similar positions in their sentences."""

from typing import ClassVar

import pandas as pd

from infoflow.flow import TokenSample
from infoflow.foundation import Scale
from infoflow.results import Column, TableSchema, estimate_columns

from ._token_pools import SETTINGS, AbstractTokenPools

POSITION_NEIGHBOURS = TableSchema(
    name="position_neighbours",
    version=3,
    description="Mean distance in position between an occurrence and its nearest occurrences of the same token.",
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings"),
        *estimate_columns(
            "tokens", "mean distance in position; lower keeps more", "all pairs of occurrences of a token"
        ),
        *SETTINGS,
    ),
)


class PositionNeighbours(AbstractTokenPools):
    """How well a layer keeps a token's position in the sentence: `position_distance`.

    Arguments are those of `AbstractTokenPools`.

    Source: [@voita2019evolution], k = 50.
    """

    table: ClassVar[TableSchema] = POSITION_NEIGHBOURS
    scale: ClassVar[Scale] = "positive"

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        rows = [
            self.row(sample, layer, scores["position"])
            for layer, scores in enumerate(self.scores(sample))
            if "position" in scores
        ]
        return self.frame(sample, rows, "position")
