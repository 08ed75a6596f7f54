"""retrieval:R-14. Retrieval that collapses.

The rule is ours: a run has collapsed where passages help by less than `UTILITY` nats and fewer than `HIT` of the first
passages are right. That some run collapses is sure only if more than a tenth of such runs would; with three seeds,
where one or two of them collapse, the claim stays open. Untrained models are no control here: before training a
retriever that was not warmed up finds next to nothing, and one that was finds a quarter, so they would always show
the claim. Rows that it needs: in retrieval_scores the metric utility (in nats, of the mean passage, over facts).
"""

import numpy as np

from .._condition import SHARE, Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._retrieval import found, told
from .._sources import REALM
from .._table import Reading
from .._zoo import COLD, RETRIEVE_LEARNED

UTILITY, HIT, SOME = 0.1, 0.1, 0.1
READS: dict[str, Reading] = {
    "cold utility": told(COLD, "utility"),
    "cold hit": found(COLD),
    "utility": told(RETRIEVE_LEARNED, "utility"),
    "hit": found(RETRIEVE_LEARNED),
}


def collapsed(utility: np.ndarray, hit: np.ndarray) -> np.ndarray:
    return ((utility < UTILITY) & (hit < HIT)).astype(float)


def test(curves: Curves) -> list[Condition]:
    cold = collapsed(curves["cold utility"], curves["cold hit"])
    warm = collapsed(curves["utility"], curves["hit"])
    return [
        exceeds("share of runs without a warm start that collapse", cold, SOME, "share of runs", bounds=SHARE),
        stays_below("share with a warm start", warm, SOME, "share of runs", bounds=SHARE, alone=False),
    ]


FINDING = Finding(
    id="retrieval:R-14",
    claim="Without a warm start retrieval may collapse, and the reader learns to ignore it.",
    source=REALM,
    published="why REALM starts with the inverse cloze task (section 3.4); seen by RAG on some tasks (appendix H)",
    statistic=f"runs whose retrieval utility is below {UTILITY} nats and whose first passage is right in less than "
    f"{HIT}: some without, none with a warm start (our rule)",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="both with a warm start",
            reads=READS | {"cold utility": READS["utility"], "cold hit": READS["hit"]},
        ),
    ),
    learned=(RETRIEVE_LEARNED,),
)
