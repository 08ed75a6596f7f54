"""The sentences of each update: a function of (seed, update), so that resuming needs no sampler state."""

import numpy as np

from infoflow.foundation import stream


class LengthBucketSampler:
    """Batches of sentences of nearly equal length under a budget of padded source tokens, in random order.

    An epoch shuffles the sentences, sorts them stably by length (so ties stay shuffled), cuts the sorted list by the
    budget, and visits the pieces in random order. The cuts depend only on lengths, so every epoch has the same number
    of batches, and update n is batch n mod `num_batches` of epoch n div `num_batches`. Only *source* lengths matter:
    all objectives of a study see the same batches in the same order.
    """

    def __init__(self, lengths: np.ndarray, seed: int, tokens: int, sentences: int | None = None) -> None:
        self._lengths = np.asarray(lengths)
        self._seed = seed
        self._cuts = _cuts(np.sort(self._lengths), tokens, sentences)
        self._epoch = -1
        self._order: np.ndarray
        self._batches: np.ndarray

    @property
    def num_batches(self) -> int:
        """Number of batches, and so updates, per epoch."""
        return len(self._cuts) - 1

    def epoch(self, update: int) -> int:
        """The epoch, from 0, of update `update`, from 1."""
        return (update - 1) // self.num_batches

    def rows(self, update: int) -> np.ndarray:
        """Rows of the corpus for update `update`, from 1."""
        self._open(self.epoch(update))
        batch = self._batches[(update - 1) % self.num_batches]
        return self._order[self._cuts[batch] : self._cuts[batch + 1]]

    def updates_within(self, source_tokens: int | None, updates: int) -> int:
        """`updates`, or fewer: up to the first at which `source_tokens` have been read."""
        if source_tokens is None:
            return updates
        read = 0
        for update in range(1, updates + 1):
            read += int(self._lengths[self.rows(update)].sum())
            if read >= source_tokens:
                return update
        return updates

    def _open(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        shuffled = stream("sentence-order", self._seed, epoch).permutation(len(self._lengths))
        self._order = shuffled[np.argsort(self._lengths[shuffled], kind="stable")]
        self._batches = stream("batch-order", self._seed, epoch).permutation(self.num_batches)
        self._epoch = epoch


def micro_batches(rows: np.ndarray, source: np.ndarray, target: np.ndarray | None, tokens: int) -> list[np.ndarray]:
    """Split an update's rows into forward passes of at most `tokens` padded tokens (source plus target).

    Rows of similar target length go together, which saves padding; the split does not affect the update.
    """
    keys = source[rows] if target is None else target[rows]
    ordered = rows[np.argsort(keys, kind="stable")]
    source_lengths = source[ordered]
    target_lengths = np.zeros_like(source_lengths) if target is None else target[ordered]
    pieces, start, longest_source, longest_target = [], 0, 0, 0
    for stop in range(len(ordered)):
        longest_source = max(longest_source, source_lengths[stop])
        longest_target = max(longest_target, target_lengths[stop])
        if stop > start and (stop + 1 - start) * (longest_source + longest_target) > tokens:
            pieces.append(ordered[start:stop])
            start, longest_source, longest_target = stop, source_lengths[stop], target_lengths[stop]
    return [*pieces, ordered[start:]]


def _cuts(ascending: np.ndarray, tokens: int, sentences: int | None) -> np.ndarray:
    cuts = [0]
    while (start := cuts[-1]) < len(ascending):
        # In ascending order the last sentence is the longest, so the padded size grows with every sentence taken.
        limit = min(len(ascending), start + (sentences or len(ascending)))
        low, high = start + 1, limit
        while low < high:
            middle = (low + high + 1) // 2
            if (middle - start) * ascending[middle - 1] <= tokens:
                low = middle
            else:
                high = middle - 1
        cuts.append(low)
    return np.array(cuts)
