"""Anisotropy of a layer, and variation between the occurrences of a word."""

# n occurrence, D width, 64 bootstrap blocks, W word, P cell

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.flow import SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import NUM_BLOCKS, UserError, block_effects, block_interval, current_display, stream
from infoflow.results import TableSchema

from ._geometry_table import GEOMETRY, SPACES, Quantity, WordRows, check_spaces, check_words, geometry_row, in_space
from ._views import (
    UNDEFINED,
    Jackknifed,
    WordBlocks,
    average_cosine,
    average_similarity,
    average_within_words,
    sums_by,
    unit_rows,
)

NUM_ROGUE = 3
_LEAST = 3  # two points always lie on a line
_CONSTANT = 1e-12  # vectors whose spread is at most this share of their length are equal up to rounding
_ROUNDING = 1e-9  # below this share of a word's variance, differences are rounding of equal vectors


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Words:
    """Some occurrences, grouped by word."""

    rows: Int[Tensor, " row"]
    cells: WordBlocks


class WordGeometry(SampleMeasure):
    r"""Average similarity, self-similarity and maximum explainable variance of each layer, with their controls.

    | measure              | value                                             | baseline                |
    |----------------------|---------------------------------------------------|-------------------------|
    | average_similarity   | mean cosine of all pairs of occurrences           | isotropic Gaussian: ≈ 0 |
    | rogue_dimensions     | share of it in the three strongest dimensions     | 3 / width               |
    | self_similarity      | mean over words of `self_similarity`              | average_similarity      |
    | explainable_variance | mean over words of `maximum_explainable_variance` | that of all occurrences |

    The controls `shuffled_self_similarity` and `shuffled_explainable_variance` are computed after shuffling occurrences
    between words, so that each word keeps only its frequency. Corrected self-similarity then falls to 0. Explainable
    variance falls to that of equally few random occurrences, which for rare words is much higher than the published
    baseline.

    Words without letters or digits (punctuation) are left out. `spaces` (`raw`, `centred`, `standardised`, `rank`) show
    whether a result comes from a common offset or from a few dimensions. Explainable variance, which no offset changes,
    is computed only for `raw` and `standardised`; rogue dimensions and shuffled self-similarity only for `raw`. A high
    average similarity need not be a defect: spaces can be isotropic around the centre of each of their clusters
    [@cai2021], and a space of clusters cannot be isotropic as a whole [@mickus2024].

    Error bars are a first-order approximation to resampling sentences (`linear_replicates`), with the mean and scale of
    the space fixed.

    Args:
        occurrences: At most this many sampled tokens.
        words: How a word's tokens become one state: "mean", "first" or "last"; "token" takes tokens as words.
        least: Words with fewer occurrences are left out of the means; at least 2.
        spaces: Which of the four spaces.

    Source: [@ethayarajh2019], [@vazquez2021]; spaces and rogue dimensions [@timkey2021].
    """

    table: ClassVar[TableSchema] = GEOMETRY

    def __init__(
        self, occurrences: int = 20_000, words: str = "mean", least: int = 5, spaces: tuple[str, ...] = SPACES
    ) -> None:
        check_words(words)
        check_spaces(spaces)
        if least < 2:
            raise UserError(f"least must be at least 2: a single occurrence has nothing to be similar to. Got {least}.")
        self.occurrences, self.words, self.least, self.spaces = occurrences, words, least, spaces
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        rows = WordRows.of(sample, self.words)
        if len(rows.sample) < 2:
            current_display().note(f"geometry of {sample.facts.model} is skipped: the sample has no two words.")
            return pd.DataFrame(columns=self.table.column_names)
        kept = rows.sample
        words, shuffled = (
            self._words(rows, rows.types),
            self._words(rows, stream("shuffled-words").permutation(rows.types)),
        )
        if len(words.rows) == 0:
            current_display().note(f"No word of {sample.facts.model}'s sample occurs {self.least} times.")
        gaussian = stream("isotropic-gaussian").standard_normal((len(kept), kept.width))
        isotropic = average_similarity(torch.from_numpy(gaussian))
        found = []
        for index in range(kept.num_states):
            states = torch.from_numpy(kept.states(index))
            for space in self.spaces:
                layer = _Layer(in_space(states, space), kept.blocks, isotropic)
                found += [{"layer": index, "space": space, **row} for row in _rows(layer, space, words, shuffled)]
        frame = pd.DataFrame(found).assign(stack=kept.facts.stack, words=rows.words)
        frame = frame.assign(**sample.sizes(self.request))
        return frame.assign(least=np.where(frame["types"] > 0, self.least, 0))

    def _words(self, rows: WordRows, types: Int[np.ndarray, " occurrence"]) -> _Words:
        chosen = np.flatnonzero(np.bincount(types, minlength=1)[types] >= self.least)
        return _Words(rows=torch.from_numpy(chosen), cells=WordBlocks.of(types[chosen], rows.sample.blocks[chosen]))


class _Layer:
    """One layer in one space: its rows of the table, without the keys."""

    def __init__(self, states: Float[Tensor, "occurrence width"], blocks: np.ndarray, isotropic: float) -> None:
        self.states, self.units = states, unit_rows(states)
        self.blocks, self.isotropic = torch.from_numpy(blocks), isotropic
        self.num = int(self.units.any(1).sum())
        self.average = average_cosine(self.units, self.blocks)

    def anisotropy(self) -> dict[str, Any]:
        return self._row("average_similarity", self.average, self.isotropic, self.num)

    def rogue(self) -> dict[str, Any]:
        """The rogue share; NaN if the average similarity is not clearly above 0."""
        average = self.average
        low = block_interval(average.value, block_effects(average.value, average.replicates)).low
        found = rogue_share(self.units, self.blocks) if low > 0 else UNDEFINED
        return self._row("rogue_dimensions", found, NUM_ROGUE / self.states.shape[1], self.num)

    def similarity(self, quantity: Quantity, words: _Words) -> dict[str, Any]:
        units = self.units[words.rows]
        found = average_within_words(units, words.cells)
        return self._row(quantity, found, self.average, int(units.any(1).sum()), words.cells.num_words)

    def variances(self, words: _Words, shuffled: _Words) -> list[dict[str, Any]]:
        everything = WordBlocks.of(np.zeros(len(self.states), dtype=np.int64), self.blocks.numpy())
        baseline = variance_within_words(self.states, everything)
        rows = []
        compared: dict[Quantity, _Words] = {"explainable_variance": words, "shuffled_explainable_variance": shuffled}
        for quantity, of in compared.items():
            found = variance_within_words(self.states[of.rows], of.cells)
            rows.append(self._row(quantity, found, baseline, len(of.rows), of.cells.num_words))
        return rows

    def _row(
        self, quantity: Quantity, found: Jackknifed, baseline: Jackknifed | float, count: int, types: int = 0
    ) -> dict[str, Any]:
        known = isinstance(baseline, Jackknifed)
        return geometry_row(
            quantity,
            found.value,
            found.replicates,
            baseline.value if known else baseline,
            baseline_replicates=baseline.replicates if known else None,
            count=count,
            types=types,
            left_out=len(self.states) - count,
        )


def _rows(layer: _Layer, space: str, words: _Words, shuffled: _Words) -> list[dict[str, Any]]:
    rows = [layer.anisotropy()]
    if space == "raw":
        rows.append(layer.rogue())
    if len(words.rows) == 0:
        return rows
    rows.append(layer.similarity("self_similarity", words))
    if space == "raw":
        rows.append(layer.similarity("shuffled_self_similarity", shuffled))
    return rows + (layer.variances(words, shuffled) if space in ("raw", "standardised") else [])


def rogue_share(units: Float[Tensor, "occurrence width"], blocks: Int[Tensor, " occurrence"]) -> Jackknifed:
    r"""The share of the expected cosine that comes from the three strongest dimensions.

    $$ \cos(x, y) = \sum_d u_d v_d, \qquad
       c_d = \frac{(\sum_i u_{id})^2 - \sum_i u_{id}^2}{n(n-1)}, \qquad
       \frac{c_{(1)} + c_{(2)} + c_{(3)}}{\sum_d c_d} $$

    The share is above 1 if other dimensions lower the cosine.

    Source: [@timkey2021].
    """
    sums, squares = (sums_by(blocks, x, NUM_BLOCKS) for x in (units, units.square()))
    total, energy = sums.sum(0), squares.sum(0)
    return Jackknifed(value=float(_share(total, energy)), without_block=_share(total - sums, energy - squares).numpy())


def _share(total: Float[Tensor, "*set width"], energy: Float[Tensor, "*set width"]) -> Float[Tensor, "*set"]:
    parts = total.square() - energy
    return parts.topk(min(NUM_ROGUE, parts.shape[-1])).values.sum(-1) / parts.sum(-1)


def variance_within_words(states: Float[Tensor, "occurrence width"], cells: WordBlocks) -> Jackknifed:
    r"""Mean over words of the share of variance along each word's first principal direction.

    When a block b is left out, the direction v is kept fixed. To first order in the block's share,

    $$ \lambda_{(b)} = \lambda - \sum_{i \in b} t_i^2 - \frac{(\sum_{i \in b} t_i)^2}{n - n_b}, \qquad
       t_i = v \cdot (x_i - \bar x) $$

    The total variance without the block is computed exactly. Words with fewer than three occurrences, or equal ones,
    are left out.
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
    """Largest eigenvalue and its eigenvector for one word, from the smaller of the two Gram matrices."""
    few = len(x) < x.shape[1]
    values, vectors = torch.linalg.eigh(x @ x.mT if few else x.mT @ x)
    direction = x.mT @ vectors[:, -1] if few else vectors[:, -1]
    return values[-1].clamp(min=0), torch.nn.functional.normalize(direction, dim=0)
