"""The occurrences of the token sample, chosen from tokens alone, and the file that takes their states."""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as np
import torch

from infoflow.corpus import NOT_A_WORD
from infoflow.foundation import hash64_array, reserve_space

from ._input import Row
from ._occurrences import Occurrences, RankStrata, Tag, first_of_each
from ._reader import Reader
from ._sample import STATES, Activations, PaddedBatch, Regime, SampleFacts, TokenSample

_COLUMNS = tuple(field.name for field in fields(Occurrences))
_BUFFERED_ROWS = 20_000  # sentences between two prunings: bounds memory on any corpus


def select_occurrences(
    reader: Reader, stack: str, regime: Regime, num: int, draws: int = 1, strata: Sequence[RankStrata] = ()
) -> Occurrences:
    """The `num` occurrences with the lowest hash of (seed, sentence id, word, draw), in that order.

    They are followed by the occurrences with the lowest hashes of each stratum that are not yet among them, in the same
    order. Hashing the word, not the token, makes models with different tokenizers sample the same words.
    """
    lowest = partial(_lowest, num=num, seed=reader.seed, ranks=reader.ranks[stack], strata=strata)
    kept, buffer = np.empty((len(_COLUMNS), 0), dtype=np.int64), []
    for draw in range(draws):
        for row in reader.rows.tolist():
            sentence = reader.sentence_rows(row, regime, draw)[stack]
            if len(sentence.probes):
                buffer.append(_columns(reader, row, sentence, draw))
            if len(buffer) == _BUFFERED_ROWS:
                kept, buffer = lowest([kept, *buffer]), []
    return Occurrences(**dict(zip(_COLUMNS, lowest([kept, *buffer]), strict=True)))


def within_budget(
    occurrences: Occurrences, ranks: np.ndarray, num: int, strata: Sequence[RankStrata], affordable: int
) -> tuple[Occurrences, int]:
    """At most `affordable` of the selected occurrences, with the same share of the plain sample and of every stratum.

    The remaining occurrences keep their order; the second result is how many of the first ones form the plain sample.
    """
    of_rank, num = ranks[occurrences.token], min(num, len(occurrences))
    bins = [each.of(of_rank) for each in strata]
    largest = [int(np.bincount(of[of >= 0], minlength=1).max()) for of in bins]
    classes = [(of, min(each.per_bin, most)) for of, each, most in zip(bins, strata, largest, strict=True)]

    def kept(share: float) -> np.ndarray:
        chosen = np.arange(len(occurrences)) < int(share * num)
        for of, size in classes:
            chosen |= first_of_each(of, int(share * size))
        return chosen

    low, high = 0.0, 1.0
    if len(occurrences) <= affordable:
        low = 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if kept(middle).sum() <= affordable else (low, middle)
    return occurrences.take(kept(low)), int(low * num)


def _columns(reader: Reader, row: int, sentence: Row, draw: int) -> np.ndarray:
    """(12, probe) int64, in the order of `Occurrences`' fields."""
    at = sentence.probes
    subword, subwords, word_type = _words(sentence)
    padded = np.concatenate([[-1], np.where(sentence.special, -1, sentence.clean), [-1]])
    constant = np.ones(len(at), dtype=np.int64)
    return np.stack(
        [
            constant * int(reader.corpus.content_ids[row]),
            constant * row,
            at,
            sentence.tokens[at],
            sentence.labels[at],
            padded[at],
            padded[at + 2],
            sentence.words[at],
            constant * draw,
            subword[at],
            subwords[at],
            word_type[at],
        ]
    )


def _words(sentence: Row) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each token: its index in its word, the word's number of tokens, and a hash of the word's token ids."""
    words = sentence.words
    begins = np.concatenate([[True], (words[1:] != words[:-1]) | (words[1:] == NOT_A_WORD)])
    starts = np.flatnonzero(begins)
    of_word = begins.cumsum() - 1
    subword = np.arange(len(words)) - starts[of_word]
    with np.errstate(over="ignore"):
        types = np.add.reduceat(hash64_array(("word-type",), sentence.tokens, subword), starts)
    subwords = np.diff(np.append(starts, len(words)))
    return subword, subwords[of_word], types[of_word].view(np.int64)


def _lowest(
    parts: list[np.ndarray], num: int, seed: int, ranks: np.ndarray, strata: Sequence[RankStrata]
) -> np.ndarray:
    """The columns of the occurrences to keep, in their order."""
    table = np.concatenate(parts, axis=1)
    sentence, _, position, token, _, _, _, word, draw, *_ = table
    place = np.where(word == NOT_A_WORD, position, word)  # slow tokenizers do not report words
    # Position breaks ties of 64-bit hashes, so that the order never depends on batches or shards.
    hashes = hash64_array(("token-sample", seed), sentence, place, draw)
    order = np.lexsort((position, sentence, draw, hashes))
    kept = np.arange(len(order)) < num
    for each in strata:
        kept |= first_of_each(each.of(ranks[token[order]]), each.per_bin)
    return table[:, order[kept]]


class SampleFiller:
    """Collects one stack's states for selected occurrences, in any order of batches."""

    def __init__(
        self,
        occurrences: Occurrences,
        facts: SampleFacts,
        tags: dict[str, Tag],
        folder: Path,
        num_states: int,
        width: int,
    ) -> None:
        self.occurrences, self.facts, self._tags = occurrences, facts, tags
        self._folder = folder
        self.filled = np.zeros(len(occurrences), dtype=bool)
        folder.mkdir(parents=True, exist_ok=True)
        shape = (num_states, len(occurrences), width)
        self._states = np.lib.format.open_memmap(folder / STATES, mode="w+", dtype=np.float32, shape=shape)
        reserve_space(folder / STATES)
        order = np.lexsort((occurrences.row, occurrences.draw))
        self._order, self._rows, self._draws = order, occurrences.row[order], occurrences.draw[order]

    def update(self, batch: PaddedBatch, activations: Activations, draw: int) -> None:
        """Store the sampled states of a batch."""
        index, sentence = self._find(batch.rows, draw)
        if len(index) == 0:
            return
        position = torch.from_numpy(self.occurrences.position[index])
        at = torch.from_numpy(sentence)
        for layer, states in enumerate(activations.hidden[self.facts.stack]):
            self._states[layer, index] = states[at, position].float().cpu().numpy()
        self.filled[index] = True

    def _find(self, rows: np.ndarray, draw: int) -> tuple[np.ndarray, np.ndarray]:
        """Sample indices whose sentence is in the batch, and their positions in the batch."""
        start = np.searchsorted(self._draws, draw, side="left")
        stop = np.searchsorted(self._draws, draw, side="right")
        of_draw = self._rows[start:stop]
        low = start + np.searchsorted(of_draw, rows, side="left")
        high = start + np.searchsorted(of_draw, rows, side="right")
        index = np.concatenate([self._order[a:b] for a, b in zip(low, high, strict=True)])
        return index, np.repeat(np.arange(len(rows)), high - low)

    def state_dict(self) -> dict[str, np.ndarray]:
        """The states that this shard has filled."""
        index = np.flatnonzero(self.filled)
        return {"index": index, "states": np.asarray(self._states[:, index])}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Add the states that another shard has filled."""
        self._states[:, state["index"]] = state["states"]
        self.filled[state["index"]] = True

    def sample(self) -> TokenSample:
        """The complete sample."""
        assert self.filled.all(), f"{(~self.filled).sum()} sampled occurrences were never seen"
        self._states.flush()
        sample = TokenSample(self.occurrences, self._states, self.facts, tags=self._tags)
        sample.save(self._folder)
        return sample
