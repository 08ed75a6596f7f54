"""Functions on arrays: entropies of spectra, curvature, and how well a layer recognises two corruptions of one text."""

# N text, T token, D width, K eigenvalue, L layer

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError, stream
from infoflow.representations._views import Matrix, as_view

TEMPERATURE = 0.1
"""Temperature of `info_nce`, as in the published code."""
_RIDGE = 1e-4  # added to the scatter within texts, as in the published code
_PERMUTATIONS = 3
_ROUNDING = 1e-6  # a smaller share of a state's length is a rounding error of float32
_NOTHING = 1e-12  # a smaller share of a spectrum is a rounding error


class Weighed(NamedTuple):
    """A statistic of texts, and its derivative with respect to the weight of each text, at weights of 1."""

    value: float
    by_weight: Float[Tensor, " text"]


def matrix_entropy(x: Matrix, alpha: float = 1.0) -> float:
    r"""Entropy of the spectrum of a Gram matrix, in nats: log n for n orthogonal rows of one length, 0 for rank one.

    $$ S_\alpha = \frac{1}{1 - \alpha} \log \sum_i \lambda_i^\alpha, \qquad
       \lambda = \mathrm{eig}\!\left( \frac{X X^\top}{\mathrm{tr}\, X X^\top} \right), \qquad
       S_1 = -\sum_i \lambda_i \log \lambda_i $$

    The eigenvalues come from the smaller one of $X X^\top$ and $X^\top X$. The entropy does not depend on rotations of
    the space, the order of the rows or a common scale. Rows are taken as they are; `LayerSpectrum` first centres them
    and scales them to length 1.

    Args:
        x: (row, width) states, float32 or float64; computed in float64.
        alpha: Order, above 0; 1 is the von Neumann entropy.

    Returns:
        Entropy in [0, log min(rows, width)]; NaN if all rows are zero.

    Raises:
        UserError: `x` is not a finite matrix, or alpha is not a number above 0.

    Source: [@skean2025]; [@giraldo2015].

    >>> round(matrix_entropy(torch.eye(4)), 4), round(matrix_entropy(torch.ones(4, 3)), 4)
    (1.3863, 0.0)
    """
    check_alpha(alpha)
    return float(entropy_of(spectrum(as_view(x, "x")), alpha))


def check_alpha(alpha: float) -> None:
    if not (alpha > 0 and math.isfinite(alpha)):
        raise UserError(f"alpha, the order of the entropy, must be a number above 0. Got {alpha}.")


def spectrum(x: Float[Tensor, "*layer row width"]) -> Float[Tensor, "*layer eigenvalue"]:
    """Eigenvalues of the Gram matrix, without those that must be 0."""
    gram = x @ x.mT if x.shape[-2] <= x.shape[-1] else x.mT @ x
    return torch.linalg.eigvalsh(gram).clamp(min=0)


def entropy_of(values: Float[Tensor, "*layer eigenvalue"], alpha: float) -> Float[Tensor, "*layer"]:
    """`matrix_entropy` of a spectrum; NaN where the whole spectrum is 0."""
    shares = values / values.sum(-1, keepdim=True)
    if alpha == 1:
        return torch.special.entr(shares).sum(-1)
    return shares.pow(alpha).sum(-1).log() / (1 - alpha)


def directions(x: Float[Tensor, "*layer row width"]) -> Float[Tensor, "*layer row width"]:
    """The rows minus their mean, at length 1; rows equal to the mean up to rounding become 0."""
    return _unit(x - x.mean(-2, keepdim=True), x)


def _unit(shifted: Tensor, x: Tensor) -> Tensor:
    lengths = torch.linalg.vector_norm(shifted, dim=-1, keepdim=True)
    still = lengths <= _ROUNDING * torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return (shifted / lengths).masked_fill(still, 0)


def curvature(x: Float[Tensor, "*layer token width"]) -> Float[Tensor, "*layer"]:
    r"""Mean angle between successive steps of a text's states, in radians: 0 for points on a line in one direction.

    $$ \frac{1}{T - 2} \sum_t \arccos \frac{v_t \cdot v_{t+1}}{\|v_t\| \|v_{t+1}\|}, \qquad v_t = x_{t+1} - x_t $$

    Angles at a step of length 0 are left out; NaN if none is left.

    Source: [@hosseini2023].
    """
    steps = _unit(x.diff(dim=-2), x[..., 1:, :])
    cosines = (steps[..., 1:, :] * steps[..., :-1, :]).sum(-1)
    moves = steps.any(-1)
    angles = cosines.clamp(-1, 1).arccos().masked_fill(~(moves[..., 1:] & moves[..., :-1]), torch.nan)
    return angles.nanmean(-1)


def weighed_entropy(x: Float[Tensor, "text width"], alpha: float) -> Weighed:
    r"""`matrix_entropy` with derivatives by row weights: $\partial \lambda_k / \partial w_i = \lambda_k v_{ki}^2$."""
    if len(x) <= x.shape[1]:
        return _of_gram(x @ x.mT, alpha)
    values, vectors = torch.linalg.eigh(x.mT @ x)
    return _weighed(values, (x @ vectors).square(), alpha)


def _of_gram(gram: Float[Tensor, "text text"], alpha: float) -> Weighed:
    values, vectors = torch.linalg.eigh(gram)
    return _weighed(values, values.clamp(min=0) * vectors.square(), alpha)


def _weighed(values: Float[Tensor, " k"], changes_NK: Float[Tensor, "text k"], alpha: float) -> Weighed:
    """The entropy of a spectrum whose eigenvalues have these derivatives with respect to the weights."""
    shares = values.clamp(min=0) / values.clamp(min=0).sum()
    moved_NK = (changes_NK - shares * changes_NK.sum(1, keepdim=True)) / values.sum()
    safe = shares.clamp(min=_NOTHING)
    slopes = -safe.log() if alpha == 1 else alpha / (1 - alpha) * safe.pow(alpha - 1) / shares.pow(alpha).sum()
    return Weighed(float(entropy_of(shares, alpha)), moved_NK @ slopes.masked_fill(shares <= _NOTHING, 0))


def info_nce(x: Float[Tensor, "text width"], y: Float[Tensor, "text width"]) -> Weighed:
    r"""Lower bound of the information that one corruption of a text has about the other, in nats.

    $$ \log N + \frac1N \sum_i \log \frac{e^{x_i \cdot y_i / \tau}}{\sum_j e^{x_i \cdot y_j / \tau}}, \qquad
       \tau = 0.1 $$

    Source: [@oord2018]; τ as in [@skean2025].
    """
    scores = x @ y.mT / TEMPERATURE
    losses = scores.logsumexp(1) - scores.diagonal()
    value = math.log(len(x)) - losses.mean()
    return Weighed(float(value), (1 - losses + losses.mean() - scores.softmax(1).sum(0)) / len(x))


def lidar(x: Float[Tensor, "text width"], y: Float[Tensor, "text width"], alpha: float) -> Weighed:
    r"""Entropy of the spectrum of the scatter between texts, relative to that between corruptions of a text.

    $$ \mathrm{LiDAR} = S_\alpha\!\left( \Sigma_w^{-1/2} \Sigma_b \Sigma_w^{-1/2} \right), \qquad
       \Sigma_w = \tfrac{1}{2N} \sum_{i, j} (x_{ij} - \bar x_i)(x_{ij} - \bar x_i)^\top + \delta I $$

    $\Sigma_b$ is the covariance of the means $\bar x_i$ of both corruptions, and $\delta = 10^{-4}$. Where the
    texts span fewer dimensions than the space has, only these are decomposed, since the others have eigenvalue 0.

    Source: [@thilak2024], whose LiDAR is the exponential of this entropy; δ as in [@skean2025].
    """
    if 2 * len(x) < x.shape[1]:
        basis = torch.linalg.qr(torch.cat([x, y]).mT).Q
        x, y = x @ basis, y @ basis
    means, halves = (x + y) / 2, (x - y) / 2
    means = means - means.mean(0)
    within = halves.mT @ halves / len(x) + _RIDGE * torch.eye(x.shape[1], dtype=x.dtype)
    lower = torch.linalg.cholesky(within)
    values, vectors = torch.linalg.eigh(_between(lower, means))
    of_means, of_halves = (_solved(lower, part).mT @ vectors for part in (means, halves))
    ridge = _RIDGE * torch.linalg.solve_triangular(lower.mT, vectors, upper=True).square().sum(0)
    changes_NK = of_means.square() - values - values * (of_halves.square() - (1 - ridge))
    return _weighed(values, changes_NK / len(x), alpha)


def _solved(lower: Tensor, x: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(lower, x.mT, upper=False)


def _between(lower: Tensor, means: Tensor) -> Tensor:
    whitened = _solved(lower, means)
    return whitened @ whitened.mT / means.shape[0]


def dime(x: Float[Tensor, "text width"], y: Float[Tensor, "text width"], alpha: float) -> Weighed:
    r"""Joint entropy of corruptions of different texts minus that of two corruptions of each text, in nats.

    $$ \mathrm{DiME} = \frac{1}{P} \sum_\pi S_\alpha(K_x \circ \Pi K_y \Pi^\top) - S_\alpha(K_x \circ K_y) $$

    K are Gram matrices, ∘ is the product of their entries, and π are 3 random orders of the texts.

    Source: [@skean2023].
    """
    own, num = x @ x.mT, len(x)
    true = _of_gram(own * (y @ y.mT), alpha)
    value, by_weight = -true.value, -true.by_weight
    for number in range(_PERMUTATIONS):
        order = torch.from_numpy(stream("dime", number).permutation(num))
        found = _of_gram(own * (y[order] @ y[order].mT), alpha)
        value = value + found.value / _PERMUTATIONS
        # a row of the product holds two texts, each with half of the weight
        by_weight = by_weight + (found.by_weight + found.by_weight[order.argsort()]) / (2 * _PERMUTATIONS)
    return Weighed(value, by_weight)


def without_blocks(found: Weighed, blocks: Int[np.ndarray, " text"], num: int) -> Float[np.ndarray, " block"]:
    """The statistic without each block of texts, to first order in their weight."""
    return found.value - np.bincount(blocks, weights=found.by_weight.numpy(), minlength=num)
