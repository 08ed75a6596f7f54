"""How much each layer changes the states."""

from typing import ClassVar

import pandas as pd

from infoflow.flow import SAMPLE_COLUMNS, SampleMeasure, SampleRequest, TokenSample
from infoflow.results import Column, TableSchema, estimate_columns

from ._paired_distance import BlockGroups, LayerView, distance_columns
from ._pwcca import check_side, warn_few_rows

LAYER_DISTANCE = TableSchema(
    name="layer_distance",
    version=2,
    description="PWCCA distance between consecutive layers of one model: how much a block changes the states. "
    "Biased towards 0 with few occurrences per dimension, and NaN with no more than two; compare rows of equal count "
    "and width.",
    light=True,
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L−1; 0 = embeddings"),
        Column(name="next_layer", dtype="int64", unit="", description="the state after it, layer + 1"),
        *estimate_columns("1 − PWCCA", "distance between the two layers", "the same with the second's rows shuffled"),
        Column(name="width", dtype="int64", unit="dimensions", description="width of the states"),
        Column(name="side", dtype="string", unit="", description="the view that weights: mean, x (layer) or y"),
        *SAMPLE_COLUMNS,
    ),
)


class LayerDistance(SampleMeasure):
    """1 − PWCCA between the states of consecutive layers (`pwcca`), of the same occurrences.

    Error bars resample sentences to first order (`linear_replicates`): repeated rows would bias PWCCA towards
    similarity. States up to 256 wide leave out each of 64 blocks in turn, wider ones 16 groups of four.

    Args:
        occurrences: At most this many sampled tokens; at least 10, better 20, per dimension.
        side: The view that weights; see `pwcca`.

    Source: [@voita2019evolution], [@morcos2018].
    """

    table: ClassVar[TableSchema] = LAYER_DISTANCE

    def __init__(self, occurrences: int = 20_000, side: str = "mean") -> None:
        check_side(side)
        self.occurrences, self.side = occurrences, side
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        warn_few_rows(len(sample), sample.width)
        groups = BlockGroups.of(sample.blocks, sample.width)
        rows, layer = [], LayerView(sample.states(0), groups)
        for index in range(sample.num_states - 1):
            following = LayerView(sample.states(index + 1), groups)
            keys = {"stack": sample.facts.stack, "layer": index, "next_layer": index + 1}
            columns = distance_columns(layer, following, self.side)
            rows.append({**keys, **columns, "width": sample.width, "side": self.side})
            layer = following
        return pd.DataFrame(rows).assign(**sample.sizes(self.request))
