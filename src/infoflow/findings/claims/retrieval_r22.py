"""retrieval:R-22. Attention as a judge of passages. The threshold is ours; the source sums over layers and heads."""

from .._condition import CORRELATION, Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import ranking
from .._sources import DISTILLED_READER
from .._table import Reading, baselines
from .._zoo import RETRIEVE_LEARNED

LEAST = 0.5
READS: dict[str, Reading] = {"agreement": ranking(RETRIEVE_LEARNED)}


def test(curves: Curves) -> list[Condition]:
    name = "rank correlation of attention on a passage with its posterior"
    return [exceeds(name, curves["agreement"], LEAST, "", bounds=CORRELATION)]


FINDING = Finding(
    id="retrieval:R-22",
    claim="The reader's attention ranks passages by how much they help.",
    source=DISTILLED_READER,
    published="a retriever that learns from the reader's attention: Natural Questions recall@20 84.3",
    statistic="Spearman's correlation over candidates of the attention from the mask on a passage's evidence with its "
    f"posterior, mean over queries: above {LEAST} (our threshold)",
    reads=READS,
    test=test,
    controls=(Control(name="random heads", reads=baselines(READS)),),
    learned=(RETRIEVE_LEARNED,),
    minimum_seeds=1,
)
