"""Similarities of two layers from their `LayerPair`: of all rows, then, for the error bars, without each group."""

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ._cca import canonical_of_overlap
from ._cca_gradient import Gradient, mean_correlation, projection_weighted
from ._layer_pair import LayerPair
from ._layer_space import batch_hsic
from ._pwcca import weighted_mean
from ._svd import thin_svd


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
    """The kept components are fixed: they hardly depend on a group."""
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
    # The best rotation of all rows is fixed: the nuclear norm's derivative.
    rotation = x.loadings @ left @ right @ y.loadings.mT
    nuclear = torch.einsum("gij,ij->g", meeting.overlaps, rotation)
    nuclear = nuclear + (singular.sum() - nuclear[0])
    return torch.arccos((nuclear / (x.variances[:num] * y.variances[:num]).sqrt()).clamp(-1, 1))


def _cka(meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    x, y, num = meeting.x, meeting.y, len(meeting.overlaps)
    cross = x.hsic(y, meeting.overlaps, meeting.fourths, debiased=False)
    return _ratio(cross, x.own_hsic[:num], y.own_hsic[:num])


def _cka_debiased(meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    x, y, num = meeting.x, meeting.y, len(meeting.overlaps)
    cross = x.hsic(y, meeting.overlaps, meeting.fourths, debiased=True)
    return _ratio(cross, x.own_hsic_debiased[:num], y.own_hsic_debiased[:num])


def _cka_minibatch(meeting: LayerPair) -> Float[Tensor, " leave_out"]:
    """Batches are the groups of bootstrap blocks, so leaving one out is exact: its terms are dropped from the sums."""
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
    "cka_debiased": _cka_debiased,
    "cka_minibatch": _cka_minibatch,
    "procrustes": _procrustes,
}
