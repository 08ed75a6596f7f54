"""How different two models' states are, layer by layer."""

from typing import ClassVar

import pandas as pd

from infoflow.flow import SAMPLE_COLUMNS, PairMeasure, SampleRequest, TokenSample
from infoflow.results import Column, TableSchema, estimate_columns

from ._paired_distance import BlockGroups, LayerView, distance_columns
from ._pwcca import check_side, warn_few_rows

MODEL_DISTANCE = TableSchema(
    name="model_distance",
    version=2,
    description="PWCCA distance between the same layer of two models that read the same words. "
    "Biased towards 0 with few occurrences per dimension, and NaN with no more than two; compare rows of equal count "
    "and width.",
    columns=(
        Column(name="stack_a", dtype="string", unit="", description="stack of the first model"),
        Column(name="stack_b", dtype="string", unit="", description="stack of the second model"),
        Column(name="layer", dtype="int64", unit="", description="state of both models; 0 = embeddings"),
        *estimate_columns("1 − PWCCA", "distance between the two models", "the same with the second's rows shuffled"),
        Column(name="width_a", dtype="int64", unit="dimensions", description="width of the first model's states"),
        Column(name="width_b", dtype="int64", unit="dimensions", description="width of the second model's states"),
        Column(name="side", dtype="string", unit="", description="the view that weights: mean, x (first) or y"),
        *SAMPLE_COLUMNS,
    ),
)


class ModelDistance(PairMeasure):
    """1 − PWCCA between state l of one model and state l of another, on the same occurrences.

    Models of different depth are compared on the states 0..min(L_a, L_b) that both have. Error bars as in
    `LayerDistance`.

    Args:
        occurrences: At most this many sampled tokens; at least 10, better 20, per dimension.
        side: The weighting view: `"x"` the first model's, `"y"` the second's; see `pwcca`.

    Source: [@voita2019evolution], [@morcos2018].
    """

    table: ClassVar[TableSchema] = MODEL_DISTANCE

    def __init__(self, occurrences: int = 20_000, side: str = "mean") -> None:
        check_side(side)
        self.occurrences, self.side = occurrences, side
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, first: TokenSample, second: TokenSample) -> pd.DataFrame:
        width = max(first.width, second.width)
        warn_few_rows(len(first), width)
        groups = BlockGroups.of(first.blocks, width)
        keys = {"stack_a": first.facts.stack, "stack_b": second.facts.stack}
        sizes = {"width_a": first.width, "width_b": second.width, "side": self.side}
        rows = []
        for layer in range(min(first.num_states, second.num_states)):
            x, y = LayerView(first.states(layer), groups), LayerView(second.states(layer), groups)
            rows.append({**keys, "layer": layer, **distance_columns(x, y, self.side), **sizes})
        return pd.DataFrame(rows).assign(**first.sizes(self.request, second))
