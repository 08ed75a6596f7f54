"""Views: matrices of representations, one row per token occurrence; their products and cosine similarities."""

# n occurrence, D width, W word, P cell (a word's occurrences in one block), 64 bootstrap blocks

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS, UserError, as_tensor
from infoflow.models import fast_linear
from infoflow.results import linear_replicates

States = Float[Tensor, "token width"]
Matrix = Tensor | np.ndarray  # a (token, width) matrix in the user's form; functions check it with `as_view`


_CONSTANT = 1e-12  # a column whose centred norm is at most this share of its raw norm is constant up to rounding


def as_view(x: Matrix, name: str, dtype: torch.dtype | None = torch.float64, least_rows: int = 1) -> States:
    """`x` as a floating-point tensor on the CPU; `dtype=None` keeps float32 and float64."""
    view = as_tensor(x)
    if view.ndim != 2 or len(view) < least_rows or view.shape[1] == 0:
        raise UserError(
            f"{name} must be a matrix of shape (tokens, width) with at least {least_rows} row and one column. "
            f"Got shape {tuple(view.shape)}. Flatten sentences into rows, one per token."
        )
    if dtype is None:
        dtype = view.dtype if view.dtype in (torch.float32, torch.float64) else torch.float32
    view = view.to(dtype)
    # If the sum is finite, so are its terms, and this check is many times faster; finite terms may still overflow.
    if not bool(view.sum().isfinite() or view.isfinite().all()):
        raise UserError(f"{name} must be finite. It holds NaN or infinity: drop those rows first.")
    return view


def as_views(x: Matrix, y: Matrix) -> tuple[Float[Tensor, "token width_x"], Float[Tensor, "token width_y"]]:
    """Both views, checked for equal numbers of rows."""
    view_x, view_y = as_view(x, "x"), as_view(y, "y")
    if len(view_x) != len(view_y):
        raise UserError(
            f"x and y must hold the same tokens in the same order. Got {len(view_x)} and {len(view_y)} rows."
        )
    return view_x, view_y


def centred(x: States) -> States:
    """`x` minus its column means; constant columns become exactly 0, even if their mean is rounded."""
    mean = x.mean(dim=0)
    shifted = x - mean
    # The raw norm combines the centred norm and the mean's; hypot, since squares of huge states overflow.
    norms = torch.linalg.vector_norm(shifted, dim=0)
    constant = norms <= _CONSTANT * torch.hypot(norms, mean * len(x) ** 0.5)
    return shifted.masked_fill_(constant, 0) if bool(constant.any()) else shifted


def as_labels(labels: Tensor | np.ndarray | list, name: str, length: int | None = None) -> np.ndarray:
    """Labels of any kind, None included, as integers 0..m−1 in order of first appearance."""
    vector = np.asarray(as_tensor(labels) if isinstance(labels, Tensor) else labels)
    if vector.ndim != 1 or len(vector) == 0:
        raise UserError(f"{name} must be a vector with at least one label. Got shape {vector.shape}.")
    if length is not None and len(vector) != length:
        raise UserError(f"{name} must hold one label per row. Got {len(vector)} labels for {length} rows.")
    return pd.factorize(vector, use_na_sentinel=False)[0]


# Products over the tokens of two views, which dominate the time of layer similarities.


_BLOCKS = 4


def product(x: Float[Tensor, "token width_x"], y: Float[Tensor, "token width_y"]) -> Float[Tensor, "width_x width_y"]:
    """x'y. In float32 it is fastest if the transposed views are contiguous by row (see `by_direction`)."""
    return fast_linear(x.mT, y.mT) if x.dtype == torch.float32 else x.mT @ y


def gram(x: States) -> Float[Tensor, "width width"]:
    """x'x from its upper blocks, with the lower ones mirrored: 5/8 of the operations."""
    size = max(1, -(-x.shape[1] // _BLOCKS))
    result = x.new_empty(x.shape[1], x.shape[1])
    for start in range(0, x.shape[1], size):
        stop = min(start + size, x.shape[1])
        result[:stop, start:stop] = x[:, :stop].mT @ x[:, start:stop]
        result[start:stop, :start] = result[:start, start:stop].mT
    return result


def sums_by(places: Int[Tensor, " row"], values: Float[Tensor, "row *rest"], num: int) -> Float[Tensor, "place *rest"]:
    """The values summed by place, 0..`num` − 1."""
    return torch.zeros(num, *values.shape[1:], dtype=values.dtype, device=values.device).index_add_(0, places, values)


def by_direction(x: Float[Tensor, "token direction"]) -> Float[Tensor, "token direction"]:
    """`x` in float32 with each direction's tokens contiguous in memory, as `product` reads them."""
    return x.mT.to(torch.float32, memory_format=torch.contiguous_format).contiguous().mT


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


def cosine_units(x: States) -> Float[Tensor, "nonzero width"]:
    """The rows scaled to length 1, without zero vectors."""
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return (x / norms)[norms[:, 0] > 0]


def unit_rows(x: States) -> States:
    """The rows scaled to length 1; zero vectors stay zero."""
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(norms > 0, norms, 1.0)


def mean_cosine(total: Float[Tensor, "*set width"], count: Tensor | int) -> Float[Tensor, "*set"]:
    """Mean cosine over the pairs of `count` unit vectors whose sum is `total`; NaN for fewer than two."""
    pairs = torch.as_tensor(count * (count - 1), dtype=total.dtype)
    return torch.where(pairs > 0, total.square().sum(-1) - count, torch.nan) / pairs


# Exact mean cosines over all pairs, with and without each bootstrap block, from sums of unit vectors.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Jackknifed:
    """A statistic, and its value minus the contribution of each block's sentences.

    If blocks are unequal shares of a word, or points are each other's neighbours, this differs slightly from the value
    without the block: see `WordBlocks.mean` and `spread_of_neighbours`.
    """

    value: float
    without_block: Float[np.ndarray, " block"]

    @property
    def replicates(self) -> Float[np.ndarray, " replicate"]:
        return linear_replicates(self.value, self.without_block)


UNDEFINED = Jackknifed(value=math.nan, without_block=np.full(NUM_BLOCKS, math.nan))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordBlocks:
    """Occurrences grouped by word, and by cell: a word and a bootstrap block."""

    words: Int[Tensor, " occurrence"]  # 0..W−1
    cells: Int[Tensor, " occurrence"]  # 0..P−1
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
        return sums_by(self.words, values, self.num_words)

    def by_cell(self, values: Float[Tensor, "occurrence *rest"]) -> Float[Tensor, "cell *rest"]:
        """Sums over each cell's occurrences."""
        return sums_by(self.cells, values, len(self.cell_words))

    def mean(
        self,
        of_words: Float[Tensor, " word"],
        without_cells: Float[Tensor, " cell"],
        counted: Float[Tensor, " occurrence"] | None = None,
    ) -> Jackknifed:
        """The mean over words, from each word's value and its value without each of its cells; NaN is skipped.

        If the other blocks hold too little of a word for a value, the word is skipped when that block is left out.
        `counted` is 0 at occurrences that affect no value, else 1; default: all count.
        """
        defined = of_words.isfinite()
        total, number = of_words[defined].sum(), defined.sum()
        own = of_words[self.cell_words]
        kept = without_cells.isfinite() & own.isfinite()
        # A block removes a word's value and adds its value on the other blocks, if defined.
        change = torch.where(kept, -self._effects(own - without_cells, kept, counted), -own.nan_to_num(0.0))
        lost = own.isfinite() & ~kept
        changes, losses = (sums_by(self.cell_blocks, x.double(), NUM_BLOCKS) for x in (change, lost))
        return Jackknifed(value=float(total / number), without_block=((total + changes) / (number - losses)).numpy())

    def _effects(
        self,
        differences: Float[Tensor, " cell"],
        kept: Bool[Tensor, " cell"],
        counted: Float[Tensor, " occurrence"] | None,
    ) -> Float[Tensor, " cell"]:
        r"""Each cell's contribution to its word's value, from the differences that leaving it out makes.

        $$ e_c = \Big( (1 - s_c) d_c - s_c \sum_k (1 - s_k) d_k \Big) \Big/ \sqrt{1 - \sum_k s_k^2} $$

        s are the cells' shares of the word's occurrences. The sum removes the effect of having fewer occurrences, since
        another sample would have as many. For g equal cells, the division multiplies by √(g / (g − 1)).

        Source: [@busing1999], the pseudo-values of unequal groups.
        """
        ones = torch.ones(len(self.words), dtype=differences.dtype) if counted is None else counted
        shares = self.by_cell(ones) / self.by_word(ones)[self.cell_words].clamp(min=1)
        added = torch.where(kept, (1 - shares) * differences, 0.0)
        added = added - shares * self._over_cells(added)
        return torch.where(kept, added / (1 - self._over_cells(shares.square())).sqrt(), 0.0)

    def _over_cells(self, values: Float[Tensor, " cell"]) -> Float[Tensor, " cell"]:
        """For each cell, the sum over all cells of its word."""
        return sums_by(self.cell_words, values, self.num_words)[self.cell_words]


def average_of_blocks(sums: Float[Tensor, "64 width"], counts: Float[Tensor, "64"]) -> Jackknifed:
    """Mean cosine over all pairs, from each block's sum and number of unit vectors."""
    total, number = sums.sum(0), counts.sum()
    without = mean_cosine(total - sums, number - counts)
    return Jackknifed(value=float(mean_cosine(total, number)), without_block=without.numpy())


def average_cosine(units: Float[Tensor, "occurrence width"], blocks: Int[Tensor, " occurrence"]) -> Jackknifed:
    """Mean cosine over all pairs; zero rows are skipped."""
    sums = sums_by(blocks, units, NUM_BLOCKS)
    counts = blocks[units.any(1)].bincount(minlength=NUM_BLOCKS)
    return average_of_blocks(sums, counts.to(units.dtype))


def average_within_words(units: Float[Tensor, "occurrence width"], cells: WordBlocks) -> Jackknifed:
    """Mean over words of the mean cosine over each word's pairs; zero rows are skipped."""
    ones = units.any(1).to(units.dtype)
    sums, counts = cells.by_word(units), cells.by_word(ones)
    rest = sums[cells.cell_words] - cells.by_cell(units)
    left = counts[cells.cell_words] - cells.by_cell(ones)
    return cells.mean(mean_cosine(sums, counts), mean_cosine(rest, left), ones)
