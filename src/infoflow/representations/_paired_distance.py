"""Distances 1 − PWCCA on the same tokens: between layers of one model, and between models."""

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import SAMPLE_COLUMNS, PairMeasure, SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import NUM_REPLICATES, Interval, stream
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._block_groups import BlockGroups
from ._cca import (
    Canonical,
    Whitening,
    canonical_by_qr,
    canonical_of_covariance,
    check_side,
    singular_floor,
    too_few_rows,
    warn_few_rows,
    weighted_mean,
    whiten,
)
from ._cca_gradient import projection_weighted
from ._views import centred


class LayerView:
    """One layer's states in group order, with their whitening."""

    def __init__(self, states: Float[np.ndarray, "token width"], groups: BlockGroups) -> None:
        raw = torch.from_numpy(states)
        self.groups, self.singular_floor = groups, singular_floor(raw.dtype)
        self.centred = centred(raw.to(torch.float64)[groups.order])

    @cached_property
    def covariances(self) -> Float[Tensor, "leave_out width width"]:
        return self.groups.covariances(self.centred, self.centred)

    @cached_property
    def white(self) -> Whitening:
        return whiten(self.covariances[0])


def distance_columns(x: LayerView, y: LayerView, side: str) -> dict:
    """Estimate columns of 1 − PWCCA between two layers on the same occurrences; the baseline shuffles the rows of y.

    NaN with too few rows for the width (`too_few_rows`).
    """
    if too_few_rows(len(x.centred), max(x.centred.shape[1], y.centred.shape[1])):
        return undefined_columns(len(x.centred))
    order = torch.from_numpy(stream("pwcca-baseline").permutation(len(y.centred)))
    cross = x.centred.mT @ y.centred[order]
    shuffled = canonical_of_covariance(x.white, y.white, cross)
    return paired_distance(x, y, side, 1 - weighted_mean(shuffled, side))


def undefined_columns(count: int) -> dict[str, Any]:
    """Estimate columns of a similarity that is undefined for so few occurrences."""
    return estimate(math.nan, np.full(NUM_REPLICATES, np.nan), math.nan, count, ends=Interval(math.nan, math.nan))


def paired_distance(x: LayerView, y: LayerView, side: str, baseline: float) -> dict[str, Any]:
    """Estimate columns of 1 − PWCCA between two views of the same occurrences."""
    crosses = x.groups.covariances(x.centred, y.centred)
    value = 1 - weighted_mean(_canonical(x, y, crosses[0]), side)
    a, b = x.white, y.white
    gradient = projection_weighted(a.basis.mT @ crosses[0] @ b.basis, a.loadings, b.loadings, len(x.centred), side)
    values = value - gradient.through(a.basis, b.basis).changes(crosses, x.covariances, y.covariances).numpy()
    ends = x.groups.interval(value, values, scale="positive")
    return estimate(value, x.groups.replicates(values), baseline, len(x.centred), ends=ends)


def _canonical(x: LayerView, y: LayerView, cross: Float[Tensor, "width_x width_y"]) -> Canonical:
    if x.white.safe and y.white.safe:
        return canonical_of_covariance(x.white, y.white, cross)
    return canonical_by_qr(x.centred, y.centred, x.singular_floor, y.singular_floor)


LAYER_DISTANCE = TableSchema(
    name="layer_distance",
    version=2,
    description="PWCCA distance between consecutive layers of one model: how much a block changes the states. "
    "Biased towards 0 with few occurrences per dimension, and NaN with no more than two; compare rows of equal count "
    "and width.",
    light=True,
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state 0..L−1; 0 = embeddings"),
        Column("next_layer", "int64", "", "the state after it, layer + 1"),
        *estimate_columns("1 − PWCCA", "distance between the two layers", "with the second layer's rows shuffled"),
        Column("width", "int64", "dimensions", "width of the states"),
        Column("side", "string", "", "the view that gives the weights: x (layer), y, or mean"),
        *SAMPLE_COLUMNS,
    ),
)


class LayerDistance(SampleMeasure):
    """1 − PWCCA between the states of consecutive layers (`pwcca`), for the same occurrences.

    Error bars are a first-order approximation to resampling sentences (`linear_replicates`), since the repeated rows of
    a bootstrap would bias PWCCA towards similarity. For states of width up to 256 each of 64 blocks is left out in
    turn, for wider ones each of 16 groups of four blocks; the change is followed through the derivatives of PWCCA, as
    in `SpaceSimilarity`.

    Args:
        occurrences: At most this many sampled tokens; at least 10, preferably 20, per dimension.
        side: The view that gives the weights; see `pwcca`.

    Source: [@voita2019evolution], [@morcos2018].
    """

    table: ClassVar[TableSchema] = LAYER_DISTANCE

    def __init__(self, occurrences: int = 20_000, side: str = "mean") -> None:
        check_side(side)
        self.occurrences, self.side = occurrences, side
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        warn_few_rows(len(sample), sample.width)
        return pd.DataFrame(layer_distances(sample, self.side)).assign(**sample.sizes(self.request))


def layer_distances(sample: TokenSample, side: str, num_groups: int | None = None) -> Iterator[dict[str, Any]]:
    """Rows of the distances between consecutive layers."""
    groups = BlockGroups.of(sample.blocks, sample.width, num_groups)
    views = (LayerView(sample.states(layer), groups) for layer in range(sample.num_states))
    for layer, (view, following) in enumerate(pairwise(views)):
        keys = {"stack": sample.facts.stack, "layer": layer, "next_layer": layer + 1}
        yield {**keys, **distance_columns(view, following, side), "width": sample.width, "side": side}


MODEL_DISTANCE = TableSchema(
    name="model_distance",
    version=2,
    description="PWCCA distance between the same layer of two models that read the same words. "
    "Biased towards 0 with few occurrences per dimension, and NaN with no more than two; compare rows of equal count "
    "and width.",
    columns=(
        Column("stack_a", "string", "", "stack of the first model"),
        Column("stack_b", "string", "", "stack of the second model"),
        Column("layer", "int64", "", "state of both models; 0 = embeddings"),
        *estimate_columns("1 − PWCCA", "distance between the two models", "with the second model's rows shuffled"),
        Column("width_a", "int64", "dimensions", "width of the first model's states"),
        Column("width_b", "int64", "dimensions", "width of the second model's states"),
        Column("side", "string", "", "the view that gives the weights: x (first model), y, or mean"),
        *SAMPLE_COLUMNS,
    ),
)


class ModelDistance(PairMeasure):
    """1 − PWCCA between state l of one model and state l of another, on the same occurrences.

    Models of different depth are compared on the states 0..min(L_a, L_b) that both have. Error bars are computed as in
    `LayerDistance`.

    Args:
        occurrences: At most this many sampled tokens; at least 10, preferably 20, per dimension.
        side: The view that gives the weights: `"x"` is the first model, `"y"` the second; see `pwcca`.

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
