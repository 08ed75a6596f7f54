"""retrieval:R-19. Rare facts.

The source is recalled and not read. That a gain is larger on rare facts says nothing by itself: useless documents too
cost most where most is known.
"""

from infoflow.results import Spec

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import COMMON, OWN, RARE, TRAINED, knows, unable_to_read
from .._sources import RARE_FACTS
from .._table import Reading
from .._zoo import CLOSED_BOOK, READ_RANDOM, RETRIEVE_LEARNED


def _reads(reader: Spec, document: str | tuple[str, ...]) -> dict[str, Reading]:
    sides = {"reader": (reader, document), "closed": (CLOSED_BOOK, "none")}
    return {
        f"{side} {weight}": knows(one, TRAINED, what, weight=weight)
        for side, (one, what) in sides.items()
        for weight in (RARE, COMMON)
    }


READS = _reads(RETRIEVE_LEARNED, OWN)


def test(curves: Curves) -> list[Condition]:
    rare, common = (curves[f"reader {weight}"] - curves[f"closed {weight}"] for weight in (RARE, COMMON))
    return [
        exceeds(
            "gain in right answers by retrieval, rarest facts less most frequent ones",
            rare - common,
            0.0,
            "share",
            alone=False,
        ),
        exceeds("gain on the rarest facts", rare, 0.0, "share"),
    ]


FINDING = Finding(
    id="retrieval:R-19",
    claim="Retrieval helps rare facts most.",
    source=RARE_FACTS,
    published="retrieval gains on questions about rarely mentioned entities, least on popular ones (recalled)",
    statistic="right answers with passages less those of the closed-book reader, trained facts: a gain on the rarest, "
    "and larger than on the most frequent",
    reads=READS,
    test=test,
    controls=(
        Control(name="reader of random passages", reads=_reads(READ_RANDOM, "random")),
        Control(name="untrained models", reads=unable_to_read(READS)),
    ),
    learned=(CLOSED_BOOK, READ_RANDOM, RETRIEVE_LEARNED),
)
