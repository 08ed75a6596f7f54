"""Distances 1 − PWCCA on the same tokens: between layers of one model, and between models."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from infoflow.flow import SAMPLE_COLUMNS, PairMeasure, SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import Interval, stream
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._block_groups import BlockGroups, undefined_columns
from ._cca import canonical_of_overlap, check_side, too_few_rows, warn_few_rows, weighted_mean
from ._layer_space import LayerPair, LayerSpace
from ._space_metrics import projection_weighted
from ._views import centred

# 1 − PWCCA between layers of token samples, with error bars from the decomposition of all rows.


WIDEST = 1024
"""Wider states are projected to this many principal components: decompositions grow with the cube of the width."""


def layer_space(states: Float[np.ndarray, "token width"], groups: BlockGroups) -> LayerSpace:
    """One layer for `paired_distance`."""
    return LayerSpace(narrowed(states), groups)


def narrowed(states: Float[np.ndarray, "token width"]) -> Float[np.ndarray, "token component"]:
    """The states; only their leading principal components if they are wider than `WIDEST`."""
    if states.shape[1] <= WIDEST:
        return states
    x = centred(torch.from_numpy(states).to(torch.float32))
    vectors = torch.linalg.eigh(x.mT @ x).eigenvectors[:, -WIDEST:]
    return (x @ vectors).numpy()


@dataclass(frozen=True, slots=True, eq=False)
class Distance:
    """1 − PWCCA and its bootstrap replicates."""

    value: float
    replicates: Float[np.ndarray, " replicate"]
    ends: Interval

    def columns(self, baseline: float, count: int) -> dict[str, Any]:
        """Estimate columns."""
        return estimate(self.value, self.replicates, baseline, count, ends=self.ends)


def distance_columns(x: LayerSpace, y: LayerSpace, side: str) -> dict:
    """Estimate columns of 1 − PWCCA between two layers on the same occurrences; the baseline shuffles the rows of y.

    NaN with too few rows for the width (`too_few_rows`).
    """
    count = len(x.squares)
    if too_few_rows(count, max(x.width, y.width)):
        return undefined_columns(count)
    return paired_distance(x, y, side).columns(_shuffled_distance(x, y, side), count)


def paired_distance(x: LayerSpace, y: LayerSpace, side: str) -> Distance:
    """1 − PWCCA between two views of the same occurrences; 1 if one of them does not vary."""
    values = np.ones(x.groups.num_groups + 1)
    if x.varies and y.varies:
        values -= projection_weighted(LayerPair.of_all(x, y), side).values_by_rows(x, y).numpy()
    return Distance(float(values[0]), x.groups.replicates(values), x.groups.interval(values[0], values, "positive"))


def _shuffled_distance(x: LayerSpace, y: LayerSpace, side: str) -> float:
    """The distance of two layers with unrelated rows."""
    order = torch.from_numpy(stream("pwcca-baseline").permutation(len(y.squares)))
    return 1 - weighted_mean(canonical_of_overlap(x.overlap(y, order), x.loadings, y.loadings), side)


# How much each layer changes the states.


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

    Error bars are a first-order approximation to resampling sentences (`linear_replicates`), since the repeated rows of
    a bootstrap would bias PWCCA towards similarity. The effect of leaving out blocks of sentences is the derivative of
    PWCCA, through correlations and weights, so all error bars need one decomposition. For states of width up to 256
    each of 64 blocks is left out in turn, for wider ones each of 16 groups of four blocks. States wider than 1,024 are
    projected to their first 1,024 principal components: a decomposition takes time with the cube of the width, and
    PWCCA needs occurrences with the width.

    Args:
        occurrences: At most this many sampled tokens; at least 10, preferably 20, per dimension.
        side: The weighting view; see `pwcca`.

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
        rows, layer = [], layer_space(sample.states(0), groups)
        for index in range(sample.num_states - 1):
            following = layer_space(sample.states(index + 1), groups)
            keys = {"stack": sample.facts.stack, "layer": index, "next_layer": index + 1}
            columns = distance_columns(layer, following, self.side)
            rows.append({**keys, **columns, "width": sample.width, "side": self.side})
            layer = following
        return pd.DataFrame(rows).assign(**sample.sizes(self.request))


# How different two models' states are, layer by layer.


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
        occurrences: At most this many sampled tokens; at least 10, preferably 20, per dimension.
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
            x, y = layer_space(first.states(layer), groups), layer_space(second.states(layer), groups)
            rows.append({**keys, "layer": layer, **distance_columns(x, y, self.side), **sizes})
        return pd.DataFrame(rows).assign(**first.sizes(self.request, second))
