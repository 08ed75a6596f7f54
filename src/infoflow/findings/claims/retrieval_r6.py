"""retrieval:R-6. Memory that outlives its passage. The closed-book reader is for comparison: it is all memory."""

from infoflow.results import Spec

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import CHANGED, COMMON, OWN, RARE, knows
from .._sources import REALM
from .._table import Reading, untrained
from .._zoo import CLOSED_BOOK, RETRIEVE_LEARNED


def _reads(
    reader: Spec, document: str | tuple[str, ...], index: str | tuple[str, ...] = "edited"
) -> dict[str, Reading]:
    return {
        str(weight): knows(reader, CHANGED, document, metric="p1_old", index=index, weight=weight)
        for weight in (RARE, COMMON)
    }


READS = _reads(RETRIEVE_LEARNED, OWN)


def test(curves: Curves) -> list[Condition]:
    gap = curves[str(COMMON)] - curves[str(RARE)]
    return [exceeds("answers as before the edit, most frequent facts less rarest ones", gap, 0.0, "share")]


FINDING = Finding(
    id="retrieval:R-6",
    claim="Some memory survives the swap of the index.",
    source=REALM,
    published="one example, in which the answer before and the new one are both among the likely ones (appendix C)",
    statistic="share of changed facts that are answered as before with the edited index: most frequent facts above "
    "the rarest",
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained model", reads=untrained(READS)),
        Control(
            name="closed-book reader",
            reads=_reads(CLOSED_BOOK, "none", ("edited", "as-trained")),
            decisive=False,
        ),
    ),
    learned=(RETRIEVE_LEARNED,),
    minimum_seeds=1,
)
