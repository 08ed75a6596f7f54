"""retrieval:R-3. Useless passages.

The threshold is ours. A trial of one seed, before this claim was written, had .56.
"""

from infoflow.results import Spec

from .._condition import Condition, stays_below
from .._finding import Control, Curves, Finding
from .._retrieval import COMMON, TRAINED, knows
from .._sources import MORE_ROOM
from .._table import Reading
from .._zoo import CLOSED_BOOK, READ_GOLD, READ_RANDOM

MOST, NOTHING = 0.1, 0.1
_BITS = {"metric": "bits", "weight": COMMON}


def _reads(reader: Spec) -> dict[str, Reading]:
    return {"reader": knows(reader, TRAINED, "none", **_BITS), "closed": knows(CLOSED_BOOK, TRAINED, "none", **_BITS)}


READS = _reads(READ_RANDOM)


def test(curves: Curves) -> list[Condition]:
    share = 1 - curves["reader"] / curves["closed"]
    return [stays_below("share of the stored bits that is missing beside random passages", share, MOST, "share")]


def hinders(curves: Curves, verdict: str) -> str | None:
    if curves["closed"][0, 0] > NOTHING:
        return None
    return "the closed-book reader stores nothing of which a share could be missing"


FINDING = Finding(
    id="retrieval:R-3",
    claim="Useless retrieval leaves what weights hold as it was.",
    source=MORE_ROOM,
    published="noise in retrieval interpolates between the retrieval-augmented model and one without (as summarised)",
    statistic=f"1 − bits(random passages) / bits(closed book), most frequent trained facts, no passage: below {MOST} "
    "(our threshold)",
    reads=READS,
    test=test,
    controls=(Control(name="reader of the right passage", reads=_reads(READ_GOLD)),),
    learned=(CLOSED_BOOK, READ_RANDOM, READ_GOLD),
    hinders=hinders,
)
