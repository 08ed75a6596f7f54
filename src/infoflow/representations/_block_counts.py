"""Counts of labels by bootstrap block: an estimate on some blocks, and without each of them, from one pass."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from infoflow.foundation import NUM_BLOCKS

from ._entropy import TERMS, CountSums


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockCounts:
    """Count of each label in each block, without zeros."""

    label: Int[np.ndarray, " entry"]  # 0..m−1, ascending
    block: Int[np.ndarray, " entry"]  # 0..63
    count: Int[np.ndarray, " entry"]

    @classmethod
    def of(cls, labels: Int[np.ndarray, " token"], blocks: Int[np.ndarray, " token"]) -> "BlockCounts":
        entries, count = np.unique(labels.astype(np.int64) * NUM_BLOCKS + blocks, return_counts=True)
        label, block = np.divmod(entries, NUM_BLOCKS)
        compact = np.cumsum(np.concatenate([[0], label[1:] != label[:-1]])) if len(label) else label
        return cls(label=compact, block=block, count=count)

    def within(self, blocks: Bool[np.ndarray, " block"]) -> "BlockCounts":
        """Counts of the chosen blocks only."""
        kept = blocks[self.block]
        return BlockCounts(label=self.label[kept], block=self.block[kept], count=self.count[kept])

    def sums(self) -> CountSums:
        """Sums over all blocks."""
        return CountSums.of(self._totals())

    def sums_without_each(self) -> CountSums:
        """Sums without each block, (64,): only the labels in a block change its sums."""
        totals = self._totals()
        before = totals[self.label]
        after = before - self.count

        def without(name: str) -> np.ndarray:
            term = TERMS[name]
            change = np.bincount(self.block, weights=term(after) * 1.0 - term(before), minlength=NUM_BLOCKS)
            return term(totals).sum() + change

        return CountSums(**{name: without(name) for name in TERMS})

    def _totals(self) -> Int[np.ndarray, " label"]:
        return np.bincount(self.label, weights=self.count).astype(np.int64)
