"""retrieval:R-12. The empty passage. The threshold is ours.

Rows that it needs: in retrieval_scores the metric null_prior of the queries "language" and "facts".
"""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import told
from .._sources import REALM
from .._table import Reading, untrained
from .._zoo import RETRIEVE_LEARNED

LEAST = 0.3
READS: dict[str, Reading] = {name: told(RETRIEVE_LEARNED, "null_prior", name) for name in ("language", "facts")}


def test(curves: Curves) -> list[Condition]:
    gap = curves["language"] - curves["facts"]
    return [exceeds("probability of the empty passage, language less facts", gap, LEAST, "probability")]


FINDING = Finding(
    id="retrieval:R-12",
    claim="The empty passage takes queries that need no knowledge.",
    source=REALM,
    published="why REALM has one (section 3.4; no number); three forms of it gained RAG nothing (its appendix F)",
    statistic=f"prior of the empty passage, sentences of language less facts: above {LEAST} (our threshold)",
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=(RETRIEVE_LEARNED,),
    minimum_seeds=1,
)
