"""Distances 1 − PWCCA on the same tokens: between layers of one model, and between models."""

# G group of bootstrap blocks, D width; leading dimension G+1 of covariances: all rows, then all rows but group g

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.flow import SAMPLE_COLUMNS, PairMeasure, SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import NUM_BLOCKS, NUM_REPLICATES, Interval, Scale, block_interval, stream
from infoflow.results import Column, TableSchema, estimate, estimate_columns, linear_replicates

from ._cca import (
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
from ._views import centred, product

_WIDE = 256
_GROUPS_OF_WIDE = 16  # each group costs a decomposition per layer; 64 of them take minutes above a width of 256
_CANCELLED = 1e-6  # when a group is subtracted, a column that varies only in that group keeps this share of its norm


@dataclass(frozen=True, slots=True, eq=False)
class BlockGroups:
    """Groups of bootstrap blocks that are left out one at a time."""

    num_groups: int
    order: Int[Tensor, " token"]  # rows sorted by group
    counts: Int[Tensor, " group"]

    @classmethod
    def of(cls, blocks: Int[np.ndarray, " token"], width: int, num_groups: int | None = None) -> "BlockGroups":
        """The groups: by default one for each block, or fewer for wide states."""
        if num_groups is None:
            num_groups = NUM_BLOCKS if width <= _WIDE else _GROUPS_OF_WIDE
        groups = torch.from_numpy(blocks % num_groups)
        return cls(num_groups, groups.argsort(stable=True), groups.bincount(minlength=num_groups))

    def covariances(
        self, x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]
    ) -> Float[Tensor, "leave_out width_x width_y"]:
        """Unnormalised cross-covariances of centred views in group order: of all rows, then without each group."""
        parts_x, parts_y = x.split(self.counts.tolist()), y.split(self.counts.tolist())
        products = torch.stack([product(a, b) for a, b in zip(parts_x, parts_y, strict=True)]).to(torch.float64)
        sums_x, sums_y = (
            torch.stack([part.sum(0, dtype=torch.float64) for part in parts]) for parts in (parts_x, parts_y)
        )
        total = products.sum(0)
        rest = (self.counts.sum() - self.counts).clamp(min=1).to(torch.float64)
        # The remaining rows are no longer centred: their mean is minus the group's sum, divided by their number.
        shift = sums_x.unsqueeze(2) * sums_y.unsqueeze(1) / rest[:, None, None]
        return torch.cat([total.unsqueeze(0), total - products - shift])

    def replicates(self, values: Float[np.ndarray, " leave_out"]) -> Float[np.ndarray, " replicate"]:
        """Bootstrap replicates (`linear_replicates`) from the values of all rows, then without each group.

        A group's effect is divided among its blocks; the square root preserves its variance.
        """
        effects = self._effects(values) / np.sqrt(NUM_BLOCKS / self.num_groups)
        return linear_replicates(values[0], values[0] - effects[np.arange(NUM_BLOCKS) % self.num_groups])

    def interval(self, value: float, values: Float[np.ndarray, " leave_out"], scale: Scale = "any") -> Interval:
        """The interval around `value`, given the values of all rows, then without each group."""
        return block_interval(value, self._effects(values), units=int((self.counts > 0).sum()), scale=scale)

    def _effects(self, values: Float[np.ndarray, " leave_out"]) -> Float[np.ndarray, " group"]:
        r"""Each group's contribution, without the effect of merely leaving out that many rows.

        $$ e_g = (1 - s_g)(v - v_{(g)}) - s_g \sum_h (1 - s_h)(v - v_{(h)}) $$

        s are the groups' shares of the rows. PWCCA is closer to 1 with fewer rows, so leaving out any rows lowers the
        distance, and a large group lowers it more. The second term removes this effect, because a new sample would have
        as many rows as this one.

        Source: [@busing1999], the pseudo-values of unequal groups.
        """
        shares = (self.counts / self.counts.sum()).numpy()
        added = (1 - shares) * (values[0] - values[1:])
        return added - shares * added.sum()


class LayerView:
    """One layer's states in group order, with its whitenings."""

    def __init__(self, states: Float[np.ndarray, "token width"], groups: BlockGroups) -> None:
        raw = torch.from_numpy(states)
        self.groups, self.singular_floor = groups, singular_floor(raw.dtype)
        self.centred = centred(raw.to(torch.float64)[groups.order])

    @cached_property
    def whitenings(self) -> list[Whitening]:
        """Whitenings of all rows, then without each group; all pairs of the layer share them."""
        covariances = self.groups.covariances(self.centred, self.centred)
        floor = _CANCELLED * covariances[0].diagonal().sqrt()
        return [whiten(covariance, floor) for covariance in covariances]


def distance_columns(x: LayerView, y: LayerView, side: str) -> dict:
    """Estimate columns of 1 − PWCCA between two layers on the same occurrences; the baseline shuffles the rows of y.

    NaN with too few rows for the width (`too_few_rows`).
    """
    if too_few_rows(len(x.centred), max(x.centred.shape[1], y.centred.shape[1])):
        return undefined_columns(len(x.centred))
    order = torch.from_numpy(stream("pwcca-baseline").permutation(len(y.centred)))
    cross = x.centred.mT @ y.centred[order]
    shuffled = canonical_of_covariance(x.whitenings[0], y.whitenings[0], cross)
    return paired_distance(x, y, side, 1 - weighted_mean(shuffled, side))


def undefined_columns(count: int) -> dict[str, Any]:
    """Estimate columns of a similarity that is undefined for so few occurrences."""
    return estimate(math.nan, np.full(NUM_REPLICATES, np.nan), math.nan, count, ends=Interval(math.nan, math.nan))


def paired_distance(x: LayerView, y: LayerView, side: str, baseline: float) -> dict[str, Any]:
    """Estimate columns of 1 − PWCCA between two views of the same occurrences."""
    crosses = x.groups.covariances(x.centred, y.centred)
    each = [canonical_of_covariance(*parts) for parts in zip(x.whitenings, y.whitenings, crosses, strict=True)]
    values = 1 - np.array([weighted_mean(canonical, side) for canonical in each])
    value = values[0]
    if not (x.whitenings[0].safe and y.whitenings[0].safe):
        value = 1 - weighted_mean(canonical_by_qr(x.centred, y.centred, x.singular_floor, y.singular_floor), side)
    # Differences come from equally conditioned covariances, and are applied around the exact value.
    ends = x.groups.interval(value, values, scale="positive")
    replicates = x.groups.replicates(values) + (value - values[0])
    return estimate(value, replicates, baseline, len(x.centred), ends=ends)


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
    turn, for wider ones each of 16 groups of four blocks.

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
