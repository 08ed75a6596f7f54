"""BM25 statistics of all passages: a shard's index needs them to score as a whole index would."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """Number of passages, their length, and the document frequency of each term."""

    num_passages: int
    num_terms: int  # of all passages, with repetitions
    holding: Counter[Hashable]

    @classmethod
    def of(cls, passages: Iterable[Sequence[Hashable]]) -> "TermStatistics":
        """Statistics of passages from a stream of their terms."""
        num = length = 0
        holding: Counter[Hashable] = Counter()
        for terms in passages:
            num, length = num + 1, length + len(terms)
            holding.update(set(terms))
        return cls(num, length, holding)

    @property
    def mean_length(self) -> float:
        """Mean number of terms per passage."""
        return self.num_terms / self.num_passages

    def rarity(self, term: Hashable) -> float:
        r"""\(\ln (1 + (N - n + .5) / (n + .5))\) for a term in n of N passages."""
        holding = self.holding[term]
        return math.log(1 + (self.num_passages - holding + 0.5) / (holding + 0.5))
