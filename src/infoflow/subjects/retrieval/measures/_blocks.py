"""Bootstrap blocks of facts."""

from collections.abc import Sequence

import numpy as np

from infoflow.corpus import Fact
from infoflow.foundation import block_of, hash64


def fact_blocks(facts: Sequence[Fact]) -> np.ndarray:
    """The bootstrap block of each fact."""
    return block_of(np.array([hash64("fact", fact.number) >> 1 for fact in facts], dtype=np.int64))
