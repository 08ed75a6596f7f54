"""retrieval:R-17. Heads of evidence and heads of memory. Ours, with thresholds of ours; judged on trained facts.

Where fewer than `KNOWN` are right without a document, nothing is known from memory that heads could lose.
"""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import TRAINED, without_heads
from .._sources import FACTUAL_RECALL
from .._table import Reading
from .._zoo import RETRIEVE_LEARNED

LEAST, KNOWN = 0.1, 0.2
READS: dict[str, Reading] = {
    "gold": without_heads(RETRIEVE_LEARNED, "gold", (TRAINED,)),
    "none": without_heads(RETRIEVE_LEARNED, "none", (TRAINED,), KNOWN),
}


def random_heads(curves: dict) -> dict:
    """As many random heads removed in place of those that copy."""
    return {name: one[:, [0, 2, 2]] for name, one in curves.items()}


def test(curves: Curves) -> list[Condition]:
    lost = {name: one[:, :1] - one[:, 1:2] for name, one in curves.items()}
    return [
        exceeds("right answers lost with the document less those without", lost["gold"] - lost["none"], LEAST, "share")
    ]


FINDING = Finding(
    id="retrieval:R-17",
    claim="Heads that carry evidence are not the heads of memory.",
    source=FACTUAL_RECALL,
    published="ours; scaling a single head moves answers from memory to context (as summarised)",
    statistic="right answers on trained facts that are lost without the quarter of heads that copy most: with the "
    f"right document more than without one, by {LEAST}; at least {KNOWN} must be right without one (our thresholds)",
    reads=READS,
    test=test,
    controls=(Control(name="random heads", reads=READS, transform=random_heads),),
    learned=(RETRIEVE_LEARNED,),
    minimum_seeds=1,
)
