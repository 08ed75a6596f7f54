"""retrieval:R-20. How many passages.

Rows that it needs: in retrieval_scores the metric p1 of the queries "dates" at k = 1, 2, 4, 8 passages, of the variants
rag-sequence and rag-token of the arm retrieve-learned, whose reader writes; as baseline the same of passages drawn at
random. What counts as a fall is ours. Which numbers are compared is fixed: the best of all would never lie below the
last, and by chance above it.
"""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import by_passages
from .._sources import RAG
from .._table import Reading, baselines
from .._zoo import RAG_SEQUENCE, RAG_TOKEN

FALL = 0.02
READS: dict[str, Reading] = {"sequence": by_passages(RAG_SEQUENCE), "token": by_passages(RAG_TOKEN)}


def test(curves: Curves) -> list[Condition]:
    steps = np.diff(curves["sequence"], axis=1)
    token = curves["token"]
    few = [0, (token.shape[1] - 1) // 2]
    falls = token[:, few] - token[:, -1:]
    names = [f"step {step}" for step in range(1, steps.shape[1] + 1)]
    return [
        exceeds("right answers with more passages less those with fewer, sequence model", steps, -FALL, "share", names,
                alone=False),
        exceeds("right answers with few passages less those with most, token model", falls, FALL, "share",
                ["the fewest", "the middle number"], over="any"),
    ]  # fmt: skip


FINDING = Finding(
    id="retrieval:R-20",
    claim="Sequence models gain from more passages at test; token models are best with few.",
    source=RAG,
    published="RAG-Sequence rises throughout, RAG-Token peaks at 10 passages (figure 3)",
    statistic=f"right answers on dates with 1, 2, 4, 8 passages: no step falls by more than {FALL} (our margin) with "
    "the passage summed out over sequences; with it summed out at tokens the fewest, or the middle number, are better "
    "than the most by more than as much",
    reads=READS,
    test=test,
    controls=(Control(name="passages drawn at random", reads=baselines(READS)),),
    learned=(RAG_SEQUENCE, RAG_TOKEN),
)
