"""retrieval:R-10. The age of the index. The threshold is ours."""

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import found
from .._sources import REALM
from .._table import Reading, untrained
from .._zoo import RETRIEVE_LEARNED, STALE

LEAST = 0.05
READS: dict[str, Reading] = {"fresh": found(RETRIEVE_LEARNED), "stale": found(STALE)}


def test(curves: Curves) -> list[Condition]:
    gap = curves["fresh"] - curves["stale"]
    return [exceeds("first passage right, fresh less stale index", gap, LEAST, "share", published=0.234)]


FINDING = Finding(
    id="retrieval:R-10",
    claim="An index that is built seldom hurts retrieval.",
    source=REALM,
    published="an index that is built 30 times less often: exact match 38.2 → 28.7, recall@5 38.5 → 15.1 (table 2)",
    statistic=f"first passage right: index as often as planned above the seldom or never refreshed one by {LEAST} (our "
    "threshold)",
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, "fresh", "stale"),
        # All arms begin with one reader and one retriever.
        Control(name="untrained models", reads=untrained(READS), decisive=False),
    ),
    learned=(RETRIEVE_LEARNED,),
)
