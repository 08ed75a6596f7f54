"""Word alignment: IBM model 1 with a prior for the diagonal."""

# P pair of sentences, E (target word, source word or none) of one pair

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int

from infoflow.foundation import UserError, words_and_signs

_NONE = -1


def words_of(text: str) -> list[str]:
    """Lower-cased words and punctuation marks; each character of a script without spaces is a word.

    >>> words_of("L'eau, ici.")
    ['l', "'", 'eau', ',', 'ici', '.']
    """
    return words_and_signs(text.lower())


class WordAligner:
    r"""Fitted to translated sentences; gives the source word of each target word, and a word's most likely translation.

    $$ p(f_j, a_j = i) = t(f_j \mid e_i) \begin{cases} p_0 & i = 0 \text{ (no word)} \\
       (1 - p_0)\, e^{-λ |i/m - j/n|} / Z_j & i = 1..m \end{cases} $$

    t by expectation maximisation; λ and p_0 are fixed. A target word aligns to the i of the largest term, or to no
    word.

    Source: IBM model 1 [@brown1993] with the prior of [@dyer2013].

    Args:
        pairs: Words of source and target.
        iterations: Iterations of expectation maximisation.
        tension: λ.
        null: p_0.

    Raises:
        UserError: No pair has words on both sides.

    >>> pairs = [(["red", "cat"], ["chat", "rouge"]), (["cat"], ["chat"])]
    >>> WordAligner(pairs).align(["red", "cat"], ["chat", "rouge"]).tolist()
    [1, 0]
    """

    def __init__(
        self,
        pairs: Iterable[tuple[Sequence[str], Sequence[str]]],
        iterations: int = 5,
        tension: float = 4.0,
        null: float = 0.08,
    ) -> None:
        kept = [(source, target) for source, target in pairs if source and target]
        if not kept:
            raise UserError("A word aligner is fitted to pairs of sentences with words on both sides. Got none.")
        self._tension, self._null = tension, null
        self._source = _numbers((source for source, _ in kept), first=1)  # 0: no word
        self._target = _numbers((target for _, target in kept), first=0)
        owners, keys, priors, size = [], [], [], 0
        for source, target in kept:
            grid = self._prior(len(source), len(target))
            ids = np.array([0, *(self._source[word] for word in source)])
            of_target = np.array([self._target[word] for word in target])
            owners.append(np.repeat(size + np.arange(len(target)), len(ids)))
            keys.append((ids[None] * len(self._target) + of_target[:, None]).ravel())
            priors.append(grid.ravel())
            size += len(target)
        self._keys, place = np.unique(np.concatenate(keys), return_inverse=True)
        self._chances = self._fitted(np.concatenate(owners), place, np.concatenate(priors), size, iterations)

    def _fitted(
        self, owner: np.ndarray, place: np.ndarray, prior: np.ndarray, size: int, iterations: int
    ) -> np.ndarray:
        given = self._keys // len(self._target)
        chances = np.ones(len(self._keys))
        for _ in range(iterations):
            terms = chances[place] * prior
            shares = terms / np.bincount(owner, terms, size)[owner]
            counts = np.bincount(place, shares, len(self._keys))
            chances = counts / np.bincount(given, counts, len(self._source) + 1)[given]
        return chances

    def _prior(self, num_source: int, num_target: int) -> np.ndarray:
        """(target word, 1 + source word); the first column is for no word."""
        i, j = np.arange(1, num_source + 1) / num_source, np.arange(1, num_target + 1) / num_target
        near = np.exp(-self._tension * np.abs(i[None] - j[:, None]))
        near *= (1 - self._null) / near.sum(axis=1, keepdims=True)
        return np.concatenate([np.full((num_target, 1), self._null), near], axis=1)

    def align(self, source: Sequence[str], target: Sequence[str]) -> Int[np.ndarray, " target"]:
        """Position of the source word of each target word; −1: none."""
        if not source or not target:
            return np.full(len(target), _NONE)
        ids = np.array([0, *(self._source.get(word, _NONE) for word in source)])
        of_target = np.array([self._target.get(word, _NONE) for word in target])
        terms = self._translation(ids[None], of_target[:, None]) * self._prior(len(source), len(target))
        return np.where(terms.max(axis=1) > 0, terms.argmax(axis=1), 0) - 1

    def _translation(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """t; 0 for words that never occurred in one pair."""
        keys = np.where((source == _NONE) | (target == _NONE), _NONE, source * len(self._target) + target)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[place] == keys, self._chances[place], 0.0)

    def word_by_word(self, source: Sequence[str]) -> list[str]:
        """The most likely translation of each known word, in the source's order."""
        names = list(self._target)
        found = []
        for word in source:
            if word in self._source:
                start = self._source[word] * len(self._target)
                low, high = np.searchsorted(self._keys, [start, start + len(self._target)])
                found.append(names[self._keys[low + int(self._chances[low:high].argmax())] - start])
        return found


def _numbers(sentences: Iterable[Sequence[str]], first: int) -> dict[str, int]:
    """Words in the order of their first occurrence."""
    known: dict[str, int] = {}
    for sentence in sentences:
        for word in sentence:
            known.setdefault(word, first + len(known))
    return known
