"""retrieval:R-11. Which part learned.

Rows that it needs: of the arm retrieve-learned the variants exchange-both, exchange-retriever, exchange-reader and
exchange-neither, which say which parts are those of the trained model (the others are as at its start), after as much
further training.
"""

from itertools import pairwise

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import HELD_OUT, OWN, knows
from .._sources import REALM
from .._table import Reading, baselines
from .._zoo import EXCHANGED

NAMES = ("both", "reader", "retriever", "neither")
ORDER = ("both", "retriever", "reader", "neither")
READS: dict[str, Reading] = {name: knows(one, HELD_OUT, OWN) for name, one in zip(NAMES, EXCHANGED, strict=True)}
_PUBLISHED = {"both": 0.008, "retriever": 0.021, "reader": 0.04}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            f"right answers, {one} trained less {other} trained",
            curves[one] - curves[other],
            0.0,
            "share",
            published=_PUBLISHED[one],
        )
        for one, other in pairwise(ORDER)
    ]


FINDING = Finding(
    id="retrieval:R-11",
    claim="Retriever and reader both gain by training together, the retriever more; most with both.",
    source=REALM,
    published="exact match after fine-tuning: both 38.2, retriever alone 37.4, encoder alone 35.3, neither 31.3 (table "
    "2)",
    statistic="right answers on facts held out, parts exchanged with those of the start and trained on: both above "
    "retriever above reader above neither",
    reads=READS,
    test=test,
    controls=(Control(name="a guess", reads=baselines(READS), decisive=False),),
    learned=(EXCHANGED[0],),
    uncontrolled="all four guess alike, whatever is trained",
)
