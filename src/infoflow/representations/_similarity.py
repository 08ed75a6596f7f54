"""Cosine similarity within a set of vectors."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ._views import Matrix, as_view


def self_similarity(x: Matrix) -> float:
    r"""Mean cosine between distinct occurrences of one word: 1 for a static embedding.

    $$ \mathrm{SelfSim} = \frac{2}{n(n-1)} \sum_{i<j} \cos(x_i, x_j)
       = \frac{\| \sum_i u_i \|^2 - n}{n(n-1)}, \qquad u_i = x_i / \|x_i\| $$

    Exact over all pairs, in O(n d). Zero vectors have no direction and are left out.

    Args:
        x: (occurrence, width), float32 or float64; computed in float64.

    Returns:
        Similarity in [−1/(n−1), 1]; NaN for fewer than two non-zero vectors.

    Source: [@ethayarajh2019].

    >>> self_similarity(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    0.0
    """
    units = cosine_units(as_view(x, "x", least_rows=0))
    return float(mean_cosine(units.sum(0), len(units)))


def average_similarity(x: Matrix) -> float:
    """Mean cosine between random occurrences: the anisotropy of a space, 0 for an isotropic one.

    The formula of `self_similarity`, over occurrences of different words. Subtract it from `self_similarity` and
    `intra_sentence_similarity` to compare layers.

    Source: [@ethayarajh2019].
    """
    return self_similarity(x)


def intra_sentence_similarity(x: Matrix) -> float:
    r"""Mean cosine between the tokens of a sentence and their mean.

    $$ \mathrm{IntraSim} = \frac1n \sum_i \cos(x_i, \bar x), \qquad \bar x = \frac1n \sum_i x_i $$

    Zero vectors are left out.

    Args:
        x: (token, width) states of one sentence, float32 or float64; computed in float64.

    Returns:
        Similarity in [−1, 1]; NaN where all vectors or their mean are zero.

    Source: [@ethayarajh2019].

    >>> round(intra_sentence_similarity(torch.tensor([[1.0, 0.0], [0.0, 1.0]])), 4)
    0.7071
    """
    view = as_view(x, "x", least_rows=0)
    view = view[view.square().sum(1) > 0]
    mean = view.mean(0)
    norm = mean.norm()
    return float((cosine_units(view) @ (mean / norm)).mean()) if len(view) and norm > 0 else math.nan


def cosine_units(x: Float[Tensor, "token width"]) -> Float[Tensor, "nonzero width"]:
    """The rows at length 1, zero vectors left out."""
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return (x / norms)[norms[:, 0] > 0]


def unit_rows(x: Float[Tensor, "token width"]) -> Float[Tensor, "token width"]:
    """The rows at length 1; zero vectors stay."""
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(norms > 0, norms, 1.0)


def mean_cosine(total: Float[Tensor, "*set width"], count: Tensor | int) -> Float[Tensor, "*set"]:
    """Mean cosine over the pairs of `count` unit vectors whose sum is `total`; NaN for fewer than two."""
    pairs = torch.as_tensor(count * (count - 1), dtype=total.dtype)
    return torch.where(pairs > 0, total.square().sum(-1) - count, torch.nan) / pairs
