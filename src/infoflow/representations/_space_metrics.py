"""Similarities of two layers, with error bars from leaving out groups of rows; similarity to one reference layer."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import stream
from infoflow.results import estimate

from ._block_groups import BlockGroups
from ._cca import canonical_of_overlap, thin_svd, weighted_mean
from ._cca_gradient import Gradient, mean_correlation, projection_weighted
from ._layer_space import LayerPair, LayerSpace, batch_hsic


def space_values(metric: str, meeting: LayerPair) -> Float[np.ndarray, " leave_out"]:
    """A similarity (for `procrustes` a distance) of all rows, then without each group to first order.

    NaN if a layer is constant, or a self term of CKA is not positive.
    """
    if not meeting.defined:
        return np.full(len(meeting.overlaps), math.nan)
    return SPACE_METRICS[metric](meeting).numpy()


def _pwcca(meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    if meeting.order is not None:  # no group is left out, so no gradient is needed
        canonical = canonical_of_overlap(meeting.overlap, meeting.x.loadings, meeting.y.loadings)
        return torch.tensor([weighted_mean(canonical, "mean")], dtype=torch.float64)
    x, y = meeting.x.loadings, meeting.y.loadings
    return _values(projection_weighted(meeting.overlap, x, y, meeting.num_tokens), meeting)


def _cca(meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    return _values(mean_correlation(meeting.overlap), meeting)


def _svcca(meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    """SVCCA with the components of all rows, which hardly depend on a single group."""
    x, y = meeting.x.leading, meeting.y.leading
    return _values(mean_correlation(x.mT @ meeting.overlap @ y).through(x, y), meeting)


def _values(gradient: Gradient, meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    """The similarity of all rows, then without each group to first order."""
    num = len(meeting.overlaps)
    return gradient.value + gradient.changes(meeting.overlaps, meeting.x.grams[:num], meeting.y.grams[:num])


def _procrustes(meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    x, y, num = meeting.x, meeting.y, len(meeting.overlaps)
    left, singular, right = thin_svd(x.loadings.mT @ meeting.overlap @ y.loadings)
    # The best rotation of all rows is kept fixed, which gives the nuclear norm's derivative.
    rotation = x.loadings @ left @ right @ y.loadings.mT
    nuclear = torch.einsum("gij,ij->g", meeting.overlaps, rotation)
    nuclear = nuclear + (singular.sum() - nuclear[0])
    return torch.arccos((nuclear / (x.variances[:num] * y.variances[:num]).sqrt()).clamp(-1, 1))


def _cka(meeting: LayerPair, debiased: bool = False) -> Float[Tensor, " leave_out"]:
    x, y, num = meeting.x, meeting.y, len(meeting.overlaps)
    cross = x.hsic(y, meeting.overlaps, meeting.fourths, debiased)
    return _ratio(cross, x.own_hsic[debiased][:num], y.own_hsic[debiased][:num])


def _cka_minibatch(meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    """CKA with the groups of bootstrap blocks as batches, so that dropping a group's terms leaves it out exactly."""
    x, y = meeting.x, meeting.y
    y_batches = y.batches if meeting.order is None else y.batches_in(meeting.order)
    terms = torch.stack([batch_hsic(x.batches, y_batches), x.own_batch_hsic, y.own_batch_hsic])
    total = terms.sum(1, keepdim=True)
    return _ratio(*torch.cat([total, total - terms], dim=1)[:, : len(meeting.overlaps)])


def _ratio(
    cross: Float[Tensor, " leave_out"], self_x: Float[Tensor, " leave_out"], self_y: Float[Tensor, " leave_out"]
) -> Float[Tensor, " leave_out"]:
    """CKA from its three terms: negative where `cross` is, NaN where a self term is not positive."""
    return cross / torch.where((self_x > 0) & (self_y > 0), self_x * self_y, math.nan).sqrt()


SPACE_METRICS: dict[str, Callable[[LayerPair], Float[Tensor, " leave_out"]]] = {
    "pwcca": _pwcca,
    "svcca": _svcca,
    "cca": _cca,
    "cka": _cka,
    "cka_debiased": partial(_cka, debiased=True),
    "cka_minibatch": _cka_minibatch,
    "procrustes": _procrustes,
}


class ReferenceLayer:
    """States of one layer, and their similarity to other states of the same tokens.

    Metrics are those of `SpaceSimilarity`, except RSA; `procrustes` is the cosine of its angle here, so that all are
    similarities, 1 for equal spaces.
    """

    def __init__(self, states: Float[np.ndarray, "token width"], blocks: Int[np.ndarray, " token"]) -> None:
        self._groups = BlockGroups.of(blocks, states.shape[1])
        self._space = LayerSpace(states, self._groups)
        self._order = torch.from_numpy(stream("similarity-baseline").permutation(len(states)))

    def similarities(
        self, states: Float[np.ndarray, "token width"], metrics: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """Estimate columns by metric; the baseline shuffles the tokens."""
        space = LayerSpace(states, self._groups)
        meeting, shuffled = LayerPair.of(space, self._space), LayerPair.shuffled(space, self._space, self._order)
        return {metric: self._columns(metric, meeting, shuffled) for metric in metrics}

    def values(self, states: Float[np.ndarray, "token width"], metrics: Sequence[str]) -> dict[str, float]:
        """Only the similarity, by metric."""
        space = LayerSpace(states, self._groups)
        # A "shuffled" pair with the tokens in their own order, because such pairs leave no group out.
        meeting = LayerPair.shuffled(space, self._space, torch.arange(len(states)))
        return {metric: float(_similarity(metric, meeting)[0]) for metric in metrics}

    def _columns(self, metric: str, meeting: LayerPair, shuffled: LayerPair) -> dict[str, Any]:
        values = _similarity(metric, meeting)
        replicates = self._groups.replicates(values)
        ends = self._groups.interval(values[0], values)
        baseline = float(_similarity(metric, shuffled)[0])
        return estimate(float(values[0]), replicates.round(5), baseline, len(self._groups.order), ends=ends)


def _similarity(metric: str, meeting: LayerPair) -> Float[np.ndarray, " leave_out"]:
    values = space_values(metric, meeting)
    return np.cos(values) if metric == "procrustes" else values
