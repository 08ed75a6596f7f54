"""retrieval:R-13. What predicts success.

Rows that it needs: in retrieval_scores of the learned retriever, of the queries "held out", the metrics
later_by_utility and later_by_likelihood: Spearman's correlation, over checkpoints of all arms of the seed, of retrieval
utility and of the log-likelihood with right answers at a later checkpoint. Their baselines: with the checkpoints in
random order.
"""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import HELD_OUT, told
from .._sources import REALM
from .._table import Reading, baselines
from .._zoo import RETRIEVE_LEARNED

READS: dict[str, Reading] = {
    name: told(RETRIEVE_LEARNED, f"later_by_{name}", (HELD_OUT, "facts", "all")) for name in ("utility", "likelihood")
}


def test(curves: Curves) -> list[Condition]:
    gap = curves["utility"] - curves["likelihood"]
    return [exceeds("correlation with later answers, utility less likelihood", gap, 0.0, "")]


FINDING = Finding(
    id="retrieval:R-13",
    claim="Retrieval utility predicts success better than likelihood does.",
    source=REALM,
    published="retrieval utility correlates with the result after fine-tuning better than the likelihood (appendix D; "
    "no number)",
    statistic="rank correlation over checkpoints with later right answers on facts held out: retrieval utility above "
    "log-likelihood",
    reads=READS,
    test=test,
    controls=(Control(name="checkpoints in random order", reads=baselines(READS)),),
    learned=(RETRIEVE_LEARNED,),
)
