"""Similarities of two layers, with error bars from leaving out groups of rows; similarity to one reference layer."""

# p, q: directions of x and y; r = min(p, q) canonical variates

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import stream
from infoflow.results import estimate

from ._cca import canonical_of_overlap, svd, thin_svd, weighted_mean
from ._layer_space import LayerPair, LayerSpace, batch_hsic
from ._paired_distance import BlockGroups

# Leaving a group out changes the overlap O = Q_x'Q_y and both Gram matrices Q'Q a little. With the decomposition O = U
# diag(ρ) V' and k, e, f the changes of O and of the Gram matrices in the bases U and V, to first order
#
#     dρ_i = N_ii,   N = k − ½ e diag(ρ) − ½ diag(ρ) f
#     dU = U Ω,      Ω_ki = (ρ_i N_ki + ρ_k N_ik) / (ρ_i² − ρ_k²)
#
# so a similarity's change is a sum over entries of k, e and f: one set of coefficients serves all groups. Leaving each
# group out in turn would cost a decomposition per group.


_SMOOTHING = 0.2
"""Threshold for squared correlations that are too close, as a share of 1/√n.

The directions of closer correlations swap between samples, so PWCCA's weights follow neither; without the threshold,
1/(ρ_i² − ρ_k²) has no finite variance. Measured on a masked and a causal LM of width 64 (Tatoeba): intervals are 0.97
to 1.1 times as wide as the spread over 25 disjoint samples of 5,000 tokens, and 0.8 to 1.1 times for 1,000 tokens;
leaving out each of 64 blocks gives 1.1 to 1.3 and 1.1 to 1.6 times.
"""


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
    return projection_weighted(meeting).values(meeting)


def _cca(meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    return mean_correlation(meeting.overlap).values(meeting)


def _svcca(meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    """SVCCA with the components of all rows, which hardly depend on a single group."""
    x, y = meeting.x.leading, meeting.y.leading
    inner = mean_correlation(x.mT @ meeting.overlap @ y)
    return Gradient(
        value=inner.value,
        overlap=x @ inner.overlap @ y.mT,
        gram_x=x @ inner.gram_x @ x.mT,
        gram_y=y @ inner.gram_y @ y.mT,
    ).values(meeting)


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


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """A similarity of all rows and its derivatives with respect to the overlap and both Gram matrices."""

    value: float
    overlap: Float[Tensor, "p q"]
    gram_x: Float[Tensor, "p p"]
    gram_y: Float[Tensor, "q q"]

    def values(self, meeting: LayerPair) -> Float[Tensor, " leave_out"]:
        """The similarity of all rows, then without each group to first order."""
        num = len(meeting.overlaps)
        parts = (
            (meeting.overlaps, self.overlap),
            (meeting.x.grams[:num], self.gram_x),
            (meeting.y.grams[:num], self.gram_y),
        )
        changes = [torch.einsum("gij,ij->g", terms, weights) for terms, weights in parts]
        change = torch.stack(changes).sum(0)
        return self.value + change - change[0]


def mean_correlation(overlap: Float[Tensor, "p q"]) -> Gradient:
    """Mean CCA and its derivatives."""
    left, rho, right = svd(overlap)
    weights = torch.full_like(rho, 1 / len(rho))
    return _in_directions(left, rho, right, float(rho.clamp(0, 1) @ weights), _diagonal(weights, overlap.shape))


def projection_weighted(meeting: LayerPair) -> Gradient:
    """PWCCA with the mean of both sides' weights, and its derivatives; see `pwcca`."""
    left, rho, right = parts = svd(meeting.overlap)
    smoothing = _SMOOTHING / math.sqrt(meeting.num_tokens)
    x = _one_side(rho, left.mT @ meeting.x.loadings, len(right), smoothing)
    y = _one_side(rho, right @ meeting.y.loadings, len(left), smoothing)
    return _in_directions(
        *parts, (x.value + y.value) / 2, (x.on_overlap + y.on_overlap.mT) / 2, x.on_gram / 2, y.on_gram / 2
    )


@dataclass(frozen=True, slots=True, eq=False)
class _CcaSide:
    """PWCCA weighted by one view, with coefficients of N and of that view's own Gram matrix."""

    value: float
    on_overlap: Float[Tensor, "own other"]
    on_gram: Float[Tensor, "own own"]


def _one_side(
    rho: Float[Tensor, " r"], variates: Float[Tensor, "own width"], num_other: int, smoothing: float
) -> _CcaSide:
    """PWCCA weighted by one view; `variates` are inner products of canonical directions with the view's raw columns."""
    num_own, r = len(variates), len(rho)
    weights = variates[:r].abs().sum(1)
    value = float(weights @ rho.clamp(0, 1) / weights.sum())
    # The change of the value as variate i rotates towards direction k, through the weights alone.
    turn = (variates @ variates[:r].sign().mT) * (rho - value) / weights.sum()
    of_rows = torch.zeros(num_own, dtype=rho.dtype)
    of_rows[:r] = rho
    gap = rho.square() - of_rows.square().unsqueeze(1)
    turn_by_gap = turn * gap / (gap.square() + smoothing**2)
    on_overlap = _diagonal(weights / weights.sum(), (num_own, num_other))
    on_overlap[:, :r] += turn_by_gap * rho
    on_overlap[:r, :r] += (turn_by_gap[:r] * rho.unsqueeze(1)).mT
    on_gram = torch.zeros(num_own, num_own, dtype=rho.dtype)
    on_gram[:, :r] = turn / 2
    return _CcaSide(value, on_overlap, on_gram)


def _in_directions(
    left: Float[Tensor, "p p"],
    rho: Float[Tensor, " r"],
    right: Float[Tensor, "q q"],
    value: float,
    on_overlap: Float[Tensor, "p q"],
    on_gram_x: Float[Tensor, "p p"] | float = 0.0,
    on_gram_y: Float[Tensor, "q q"] | float = 0.0,
) -> Gradient:
    """Coefficients of N, e and f, converted to those of the overlap and the Gram matrices."""
    correlations = _diagonal(rho, on_overlap.shape)
    return Gradient(
        value=value,
        overlap=left @ on_overlap @ right,
        gram_x=left @ (on_gram_x - on_overlap @ correlations.mT / 2) @ left.mT,
        gram_y=right.mT @ (on_gram_y - correlations.mT @ on_overlap / 2) @ right,
    )


def _diagonal(values: Float[Tensor, " r"], shape: torch.Size | tuple[int, int]) -> Float[Tensor, "p q"]:
    matrix = torch.zeros(shape, dtype=values.dtype)
    matrix.diagonal()[:] = values
    return matrix


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
