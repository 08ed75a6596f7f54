"""Exact mean cosines of all pairs, and without each bootstrap block: sums of unit vectors suffice."""

# n occurrence, D width, W word, P cell (a word's occurrences in one block), 64 bootstrap blocks

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS
from infoflow.results import linear_replicates

from ._similarity import mean_cosine


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Jackknifed:
    """A statistic, and its value minus the contribution of each block's sentences.

    If blocks are unequal shares of a word, or points are each other's neighbours, that differs slightly from the value
    without them: see `WordBlocks.mean` and `spread_of_neighbours`.
    """

    value: float
    without_block: Float[np.ndarray, " block"]

    @property
    def replicates(self) -> Float[np.ndarray, " replicate"]:
        return linear_replicates(self.value, self.without_block)


UNDEFINED = Jackknifed(value=math.nan, without_block=np.full(NUM_BLOCKS, math.nan))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordBlocks:
    """Occurrences by word, and by word and block."""

    words: Int[Tensor, " occurrence"]
    """0..W−1"""
    cells: Int[Tensor, " occurrence"]
    """0..P−1"""
    cell_words: Int[Tensor, " cell"]
    cell_blocks: Int[Tensor, " cell"]

    @classmethod
    def of(cls, words: Int[np.ndarray, " occurrence"], blocks: Int[np.ndarray, " occurrence"]) -> "WordBlocks":
        names, codes = np.unique(words, return_inverse=True)
        keys, cells = np.unique(codes * NUM_BLOCKS + blocks, return_inverse=True)
        assert len(keys) == 0 or keys[-1] < len(names) * NUM_BLOCKS
        return cls(
            words=torch.from_numpy(codes),
            cells=torch.from_numpy(cells),
            cell_words=torch.from_numpy(keys // NUM_BLOCKS),
            cell_blocks=torch.from_numpy(keys % NUM_BLOCKS),
        )

    @property
    def num_words(self) -> int:
        return int(self.words.max()) + 1 if len(self.words) else 0

    def by_word(self, values: Float[Tensor, "occurrence *rest"]) -> Float[Tensor, "word *rest"]:
        """Sums over each word's occurrences."""
        return torch.zeros(self.num_words, *values.shape[1:], dtype=values.dtype).index_add_(0, self.words, values)

    def by_cell(self, values: Float[Tensor, "occurrence *rest"]) -> Float[Tensor, "cell *rest"]:
        """Sums over each cell's occurrences."""
        return torch.zeros(len(self.cell_words), *values.shape[1:], dtype=values.dtype).index_add_(
            0, self.cells, values
        )

    def mean(
        self,
        of_words: Float[Tensor, " word"],
        without_cells: Float[Tensor, " cell"],
        counted: Float[Tensor, " occurrence"] | None = None,
    ) -> Jackknifed:
        """The mean over words, from each word's value and its value without each of its cells; NaN is skipped.

        If a block leaves too little of a word for a value, the word is skipped without that block.
        `counted` is 0 at occurrences that affect no value, else 1; default: all count.
        """
        defined = of_words.isfinite()
        total, number = of_words[defined].sum(), defined.sum()
        own = of_words[self.cell_words]
        kept = without_cells.isfinite() & own.isfinite()
        # A block removes a word's value and adds its value on the other blocks, if defined.
        change = torch.where(kept, -self._effects(own - without_cells, kept, counted), -own.nan_to_num(0.0))
        lost = own.isfinite() & ~kept
        zeros = torch.zeros(NUM_BLOCKS, dtype=torch.float64)
        changes, losses = (zeros.index_add(0, self.cell_blocks, x.double()) for x in (change, lost))
        return Jackknifed(value=float(total / number), without_block=((total + changes) / (number - losses)).numpy())

    def _effects(
        self,
        differences: Float[Tensor, " cell"],
        kept: Bool[Tensor, " cell"],
        counted: Float[Tensor, " occurrence"] | None,
    ) -> Float[Tensor, " cell"]:
        r"""Each cell's contribution to its word's value, from the differences that leaving it out makes.

        $$ e_c = \Big( (1 - s_c) d_c - s_c \sum_k (1 - s_k) d_k \Big) \Big/ \sqrt{1 - \sum_k s_k^2} $$

        s are the cells' shares of the word's occurrences. The sum is the contribution of any occurrences: a statistic
        of fewer is biased more, but another sample has as many. The root is that of g / (g − 1) for g equal cells.

        Source: [@busing1999], the pseudo-values of unequal groups.
        """
        ones = torch.ones(len(self.words), dtype=differences.dtype) if counted is None else counted
        shares = self.by_cell(ones) / self.by_word(ones)[self.cell_words].clamp(min=1)
        added = torch.where(kept, (1 - shares) * differences, 0.0)
        added = added - shares * self._over_cells(added)
        return torch.where(kept, added / (1 - self._over_cells(shares.square())).sqrt(), 0.0)

    def _over_cells(self, values: Float[Tensor, " cell"]) -> Float[Tensor, " cell"]:
        """The sum over all cells of each cell's word."""
        sums = torch.zeros(self.num_words, dtype=values.dtype).index_add_(0, self.cell_words, values)
        return sums[self.cell_words]


def average_of_blocks(sums: Float[Tensor, "64 width"], counts: Float[Tensor, "64"]) -> Jackknifed:
    """Mean cosine over all pairs, from each block's sum and number of unit vectors."""
    total, number = sums.sum(0), counts.sum()
    without = mean_cosine(total - sums, number - counts)
    return Jackknifed(value=float(mean_cosine(total, number)), without_block=without.numpy())


def average_cosine(units: Float[Tensor, "occurrence width"], blocks: Int[Tensor, " occurrence"]) -> Jackknifed:
    """Mean cosine over all pairs; zero rows are skipped."""
    sums = torch.zeros(NUM_BLOCKS, units.shape[1], dtype=units.dtype).index_add_(0, blocks, units)
    counts = blocks[units.any(1)].bincount(minlength=NUM_BLOCKS)
    return average_of_blocks(sums, counts.to(units.dtype))


def average_within_words(units: Float[Tensor, "occurrence width"], cells: WordBlocks) -> Jackknifed:
    """Mean over words of the mean cosine over each word's pairs; zero rows are skipped."""
    ones = units.any(1).to(units.dtype)
    sums, counts = cells.by_word(units), cells.by_word(ones)
    rest = sums[cells.cell_words] - cells.by_cell(units)
    left = counts[cells.cell_words] - cells.by_cell(ones)
    return cells.mean(mean_cosine(sums, counts), mean_cosine(rest, left), ones)
