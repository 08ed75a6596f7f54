"""retrieval:R-5. Other passages in the index. The thresholds are ours."""

from infoflow.results import Spec

from .._condition import SHARE, Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._retrieval import CHANGED, LATER, OWN, knows
from .._sources import RAG
from .._table import Reading
from .._zoo import CLOSED_BOOK, RETRIEVE_LEARNED

NEW, OLD = 0.6, 0.2


def _reads(
    reader: Spec, document: str | tuple[str, ...], index: str | tuple[str, ...] = "edited"
) -> dict[str, Reading]:
    return {
        "changed": knows(reader, CHANGED, document, metric="p1_new", index=index),
        "later": knows(reader, LATER, document, metric=("p1_new", "p1"), index=index),
        "old": knows(reader, CHANGED, document, metric="p1_old", index=index),
    }


READS = _reads(RETRIEVE_LEARNED, OWN)


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds("answers of the edited passages, changed facts", curves["changed"], NEW, "share", bounds=SHARE),
        exceeds("answers of the added passages, new entities", curves["later"], NEW, "share", bounds=SHARE),
        stays_below(
            "answers as before the edit", curves["old"], OLD, "share", bounds=SHARE, alone=False, published=0.08
        ),
    ]


FINDING = Finding(
    id="retrieval:R-5",
    claim="Another index changes what the model answers, without training.",
    source=RAG,
    published="questions about world leaders: 70 and 68 % right with their year's index, 12 and 4 % with the other",
    statistic=f"right answers with the edited index, changed facts and new entities: above {NEW}; answers as before: "
    f"below {OLD} (our thresholds)",
    reads=READS,
    test=test,
    controls=(
        Control(name="index as in training", reads=_reads(RETRIEVE_LEARNED, OWN, "as-trained")),
        Control(name="closed-book reader", reads=_reads(CLOSED_BOOK, "none", ("edited", "as-trained"))),
    ),
    learned=(CLOSED_BOOK, RETRIEVE_LEARNED),
    minimum_seeds=1,
)
