"""Random choices of one sentence, by counter: sentence i of a seed does not depend on other sentences."""

from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

import numpy as np

from infoflow.foundation import hash64_array

Item = TypeVar("Item")

_CHUNK_SENTENCES = 512
_DRAWS_AT_ONCE = 96  # few sentences need more; they fetch another block


class Draws:
    """Uniform numbers of sentence `index` under `seed`, in order."""

    def __init__(self, seed: int, index: int, first: list[float]) -> None:
        self._key = ("grammar", seed)
        self._index = index
        self._portion = 0
        self._numbers = iter(first)

    def uniform(self) -> float:
        """The next number in [0, 1)."""
        for number in self._numbers:
            return number
        self._portion += 1
        counters = np.arange(self._portion * _DRAWS_AT_ONCE, (self._portion + 1) * _DRAWS_AT_ONCE)
        self._numbers = iter(_uniform(self._key, np.array([self._index]), counters).tolist())
        return next(self._numbers)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.uniform() < probability

    def pick(self, items: "Zipfian[Item]") -> Item:
        """A random item, by its frequency."""
        return items.at(self.uniform())


class Zipfian(Sequence[Item]):
    r"""Items whose probability falls with their rank: $p_r \propto r^{-s}$."""

    def __init__(self, items: Sequence[Item], exponent: float) -> None:
        self._items = items
        cumulative = list(accumulate((rank + 1) ** -exponent for rank in range(len(items))))
        self._cumulative = [value / cumulative[-1] for value in cumulative]

    def at(self, share: float) -> Item:
        """The item at this share of the probability mass."""
        return self._items[min(bisect(self._cumulative, share), len(self._items) - 1)]

    def __getitem__(self, index):  # type: ignore[override]
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)


def draws_of(seed: int, num: int) -> Iterator[Draws]:
    """The draws of sentences 0..num − 1, hashed many sentences at a time."""
    counters = np.arange(_DRAWS_AT_ONCE)
    for start in range(0, num, _CHUNK_SENTENCES):
        indices = np.arange(start, min(start + _CHUNK_SENTENCES, num))
        numbers = _uniform(("grammar", seed), indices[:, None], counters[None, :]).tolist()
        for index, first in zip(indices.tolist(), numbers, strict=True):
            yield Draws(seed, index, first)


def _uniform(key: tuple[str, int], indices: np.ndarray, counters: np.ndarray) -> np.ndarray:
    # 53 bits, as in a float, so that 1.0 never occurs.
    return (hash64_array(key, indices, counters) >> np.uint64(11)) * 2.0**-53
