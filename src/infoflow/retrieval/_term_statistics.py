"""What BM25 knows of all passages: a shard's index needs it to score as an index of all would."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """How many passages there are, how long they are, and how many hold each term."""

    num_passages: int
    num_terms: int  # of all passages, repeated ones too
    holding: Counter[Hashable]

    @classmethod
    def of(cls, passages: Iterable[Sequence[Hashable]]) -> "TermStatistics":
        """Those of passages as they come, by their terms."""
        num = length = 0
        holding: Counter[Hashable] = Counter()
        for terms in passages:
            num, length = num + 1, length + len(terms)
            holding.update(set(terms))
        return cls(num, length, holding)

    @property
    def mean_length(self) -> float:
        """Terms of a passage."""
        return self.num_terms / self.num_passages

    def rarity(self, term: Hashable) -> float:
        r"""\(\ln (1 + (N - n + .5) / (n + .5))\) of a term that n of N passages hold."""
        holding = self.holding[term]
        return math.log(1 + (self.num_passages - holding + 0.5) / (holding + 0.5))
