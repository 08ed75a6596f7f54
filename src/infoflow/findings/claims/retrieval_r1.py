"""retrieval:R-1. Reading against remembering.

The thresholds are ours. The source's closed-book model is larger and of another kind; here both are one reader.
"""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import HELD_OUT, OWN, RARE, TRAINED, knows, unable_to_read
from .._sources import REALM
from .._table import Reading
from .._zoo import CLOSED_BOOK, READ_RANDOM, RETRIEVE_LEARNED

LEAST = 0.5


def _reads(reader: dict[str, Reading]) -> dict[str, Reading]:
    closed = {f"{facts} closed": knows(CLOSED_BOOK, facts, "none", weight=weight) for facts, weight in _CLASSES}
    return reader | closed


_CLASSES = ((HELD_OUT, -1), (TRAINED, RARE))
READS = _reads({facts: knows(RETRIEVE_LEARNED, facts, OWN, weight=weight) for facts, weight in _CLASSES})


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            f"right answers with passages less those of the closed-book reader, {name}",
            curves[facts] - curves[f"{facts} closed"],
            limit,
            "share",
        )
        for facts, name, limit in ((HELD_OUT, "facts held out", LEAST), (TRAINED, "rarest facts", 0.0))
    ]


FINDING = Finding(
    id="retrieval:R-1",
    claim="At equal readers, reading beats remembering.",
    source=REALM,
    published="exact match on Natural Questions 39.2 and 40.4, beside 34.5 of a closed-book T5 with 34 times the "
    "parameters (table 1)",
    statistic=f"right answers with passages that are found less those of the closed-book reader: above {LEAST} on "
    "facts in passages alone, above 0 on the rarest trained ones (our thresholds)",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="reader of random passages",
            reads=_reads({facts: knows(READ_RANDOM, facts, "random", weight=weight) for facts, weight in _CLASSES}),
        ),
        Control(name="untrained models", reads=unable_to_read(READS)),
    ),
    learned=(CLOSED_BOOK, READ_RANDOM, RETRIEVE_LEARNED),
)
