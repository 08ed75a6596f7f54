"""retrieval:R-21. The posterior along an answer.

Rows that it needs: in retrieval_scores of the variant rag-token, whose reader writes, of the queries "dates", the
metrics posterior_entropy_1 and posterior_entropy_2, in nats, of the first and the second token; as baseline the same
with the tokens of an answer in random order.
"""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import told
from .._sources import RAG
from .._table import Reading, baselines
from .._zoo import RAG_TOKEN

READS: dict[str, Reading] = {
    name: told(RAG_TOKEN, f"posterior_entropy_{place}", "dates") for place, name in ((1, "first"), (2, "second"))
}


def test(curves: Curves) -> list[Condition]:
    gap = curves["second"] - curves["first"]
    return [exceeds("entropy of the posterior over passages, second token less first", gap, 0.0, "nats")]


FINDING = Finding(
    id="retrieval:R-21",
    claim="After the first token of an answer the posterior over passages flattens.",
    source=RAG,
    published="one generated sentence, in which the posterior is flat after the first token of each title (figure 2)",
    statistic="entropy of the posterior over passages on dates, summed out at tokens: second token above first",
    reads=READS,
    test=test,
    controls=(Control(name="tokens of an answer in random order", reads=baselines(READS)),),
    learned=(RAG_TOKEN,),
)
