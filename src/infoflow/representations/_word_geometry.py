"""Anisotropy of a layer, and variation between the occurrences of a word."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.flow import SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import UserError, block_effects, block_interval, current_display, stream
from infoflow.results import TableSchema

from ._block_similarity import UNDEFINED, Jackknifed, WordBlocks, average_cosine, average_within_words
from ._block_variance import variance_within_words
from ._geometry_table import GEOMETRY, Quantity, geometry_row
from ._rogue_dimensions import NUM_ROGUE, rogue_share
from ._similarity import average_similarity, unit_rows
from ._spaces import SPACES, check_spaces, in_space
from ._word_rows import WordRows, check_words


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Words:
    """Some occurrences, grouped."""

    rows: Int[Tensor, " row"]
    cells: WordBlocks


class WordGeometry(SampleMeasure):
    r"""Average similarity, self-similarity and maximum explainable variance of each layer, with their controls.

    | measure              | value                                                 | baseline                |
    |----------------------|-------------------------------------------------------|-------------------------|
    | average_similarity   | mean cosine of all pairs of occurrences               | isotropic Gaussian: ≈ 0 |
    | rogue_dimensions     | share of it that the three strongest dimensions carry | 3 / width               |
    | self_similarity      | mean over words of `self_similarity`                  | average_similarity      |
    | explainable_variance | mean over words of `maximum_explainable_variance`     | that of all occurrences |

    The controls `shuffled_self_similarity` and `shuffled_explainable_variance` are the same after words have exchanged
    their occurrences, so that only how often each occurs stays. Corrected self-similarity falls to 0 there; explainable
    variance to what so few random occurrences have, which for rare words is much more than the published baseline.

    Words without letter or digit (punctuation) are left out. `spaces` (`raw`, `centred`, `standardised`, `rank`) say
    whether a result rests on a common offset or on a few dimensions. Explainable variance, which no offset changes, is
    given raw and standardised; rogue dimensions and shuffled self-similarity raw. A high average similarity alone is no
    defect: spaces can be isotropic around the centre of each of their clusters [@cai2021], and clusters cannot be
    isotropic together [@mickus2024].

    Error bars resample sentences to first order (`linear_replicates`), with the space's mean and scale fixed.

    Args:
        occurrences: At most this many sampled tokens.
        words: How a word's tokens become one state: "mean", "first" or "last"; "token" takes tokens as words.
        least: Words with fewer occurrences are not averaged over; at least 2.
        spaces: Which of the four spaces.

    Source: [@ethayarajh2019], [@vazquez2021]; spaces and rogue dimensions [@timkey2021].
    """

    table: ClassVar[TableSchema] = GEOMETRY

    def __init__(
        self,
        occurrences: int = 20_000,
        words: str = "mean",
        least: int = 5,
        spaces: tuple[str, ...] = SPACES,
    ) -> None:
        check_words(words)
        check_spaces(spaces)
        if least < 2:
            raise UserError(f"least must be at least 2: one occurrence is not similar to itself alone. Got {least}.")
        self.occurrences, self.words, self.least, self.spaces = occurrences, words, least, spaces
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        rows = WordRows.of(sample, self.words)
        if len(rows.sample) < 2:
            current_display().note(f"geometry of {sample.facts.model} is skipped: the sample has no two words.")
            return pd.DataFrame(columns=self.table.column_names)
        kept = rows.sample
        words, shuffled = self._words(rows, rows.types), self._words(rows, _shuffled(rows.types))
        if len(words.rows) == 0:
            current_display().note(f"No word of {sample.facts.model}'s sample occurs {self.least} times.")
        isotropic = _isotropic(len(kept), kept.width)
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
        chosen = np.flatnonzero(rows.frequent(types, self.least))
        return _Words(rows=torch.from_numpy(chosen), cells=WordBlocks.of(types[chosen], rows.sample.blocks[chosen]))


class _Layer:
    """One layer in one space: its rows of the table, but for the keys."""

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
        found: dict[Quantity, _Words] = {"explainable_variance": words, "shuffled_explainable_variance": shuffled}
        return [
            self._row(
                quantity,
                variance_within_words(self.states[of.rows], of.cells),
                baseline,
                len(of.rows),
                of.cells.num_words,
            )
            for quantity, of in found.items()
        ]

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


def _shuffled(types: Int[np.ndarray, " occurrence"]) -> Int[np.ndarray, " occurrence"]:
    return stream("shuffled-words").permutation(types)


def _isotropic(num: int, width: int) -> float:
    """Average similarity of the same number of isotropic Gaussian vectors."""
    gaussian = stream("isotropic-gaussian").standard_normal((num, width))
    return average_similarity(torch.from_numpy(gaussian))
