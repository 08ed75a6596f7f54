"""Maximum explainable variance of words, and without each bootstrap block, from one decomposition per word."""

# n occurrence, D width, W word, P cell

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._block_similarity import Jackknifed, WordBlocks

_LEAST = 3
"""Two points always lie on a line."""
_CONSTANT = 1e-12
"""Vectors whose spread is at most this share of their length are equal up to rounding."""
_ROUNDING = 1e-9
"""A smaller share of a word's variance is the rounding of equal vectors."""


def variance_within_words(states: Float[Tensor, "occurrence width"], cells: WordBlocks) -> Jackknifed:
    r"""Mean over words of the share of variance along each word's first principal direction.

    Without a block b, the direction v is kept fixed: to first order in the block's share,

    $$ \lambda_{(b)} = \lambda - \sum_{i \in b} t_i^2 - \frac{(\sum_{i \in b} t_i)^2}{n - n_b}, \qquad
       t_i = v \cdot (x_i - \bar x) $$

    and the total variance likewise, exactly. A word with constant or fewer than three occurrences is left out.
    """
    counts = cells.by_word(torch.ones(len(states), dtype=states.dtype))
    shifted = states - (cells.by_word(states) / counts.unsqueeze(1))[cells.words]
    still = shifted.square().sum(1) <= _CONSTANT**2 * states.square().sum(1)
    shifted = shifted.masked_fill(still.unsqueeze(1), 0)
    top, directions = _first_directions(shifted, cells.words, cells.num_words)
    scores = (shifted * directions[cells.words]).sum(1)
    lengths = shifted.square().sum(1)
    total = cells.by_word(lengths)
    own_total, own_count = total[cells.cell_words], counts[cells.cell_words]
    left = own_count - cells.by_cell(torch.ones_like(scores))
    top_left = top[cells.cell_words] - cells.by_cell(scores.square()) - cells.by_cell(scores).square() / left
    moved = cells.by_cell(shifted).square().sum(1)
    total_left = own_total - cells.by_cell(lengths) - moved / left
    varies = (left >= _LEAST) & (total_left > _ROUNDING * own_total)
    without = torch.where(varies, top_left / total_left, torch.nan)
    return cells.mean(torch.where((counts >= _LEAST) & (total > 0), top / total, torch.nan), without)


def _first_directions(
    shifted: Float[Tensor, "occurrence width"], words: Int[Tensor, " occurrence"], num_words: int
) -> tuple[Float[Tensor, " word"], Float[Tensor, "word width"]]:
    """Largest eigenvalue of each word's scatter matrix, and its eigenvector."""
    order = words.argsort(stable=True)
    groups = shifted[order].split(words.bincount(minlength=num_words).tolist())
    found = [_first_direction(group) for group in groups]
    empty = shifted.new_empty(0), shifted.new_empty(0, shifted.shape[1])
    return (torch.stack([value for value, _ in found]), torch.stack([v for _, v in found])) if found else empty


def _first_direction(x: Float[Tensor, "occurrence width"]) -> tuple[Float[Tensor, ""], Float[Tensor, " width"]]:
    """Computed from the smaller of the two Gram matrices."""
    few = len(x) < x.shape[1]
    values, vectors = torch.linalg.eigh(x @ x.mT if few else x.mT @ x)
    direction = x.mT @ vectors[:, -1] if few else vectors[:, -1]
    return values[-1].clamp(min=0), torch.nn.functional.normalize(direction, dim=0)
