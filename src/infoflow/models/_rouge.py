"""ROUGE: how much of a right text a written one has."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

ROUGE = ("rougeL", "rouge1", "rouge2")


def rouge(said: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """ROUGE-L, 1 and 2 of each text, from 0 to 1, float64 (text,): F of the longest common subsequence, of words and of
    pairs of words, of the nearest reference ([@lin2004]).

    As rouge-score has it, with stemming: English words and digits alone count, without regard to case.
    """
    each = [_scorer().score_multi(list(right), text) for text, right in zip(said, references, strict=True)]
    return {kind: np.array([float(one[kind].fmeasure) for one in each]) for kind in ROUGE}


@cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # takes long to import

    return RougeScorer(list(ROUGE), use_stemmer=True)
