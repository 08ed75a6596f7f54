"""retrieval:R-23. The depths of evidence and of memory.

Ours, and reported rather than tested: the verdict goes by a rule of ours, that the gain by a document lies lower than
the answer from memory. Memory is read in the most frequent facts: of all trained ones a closed book may know too few
for a lens to tell where. A trial of one seed had halves of 2 and 4, of 4 blocks.
"""

from .._chance import seeds_alone
from .._condition import Condition, stays_below
from .._finding import Control, Curves, Finding
from .._retrieval import COMMON, HELD_OUT, TRAINED, entry
from .._sources import OURS
from .._table import Reading, untrained
from .._zoo import CLOSED_BOOK, RETRIEVE_LEARNED

READS: dict[str, Reading] = {
    "evidence": entry(RETRIEVE_LEARNED, HELD_OUT, "gold"),
    "memory": entry(CLOSED_BOOK, TRAINED, "none", COMMON),
}


def test(curves: Curves) -> list[Condition]:
    gap = curves["evidence"] - curves["memory"]
    return [
        stays_below("where evidence enters less where memory is read", gap[:, 1:], 0.0, "layers"),
        stays_below("the same of the layers where half is reached", gap[:, :1], 1.0, "layers", alone=False),
    ]


FINDING = Finding(
    id="retrieval:R-23",
    claim="Evidence enters at another depth than memory is read.",
    source=OURS,
    published="no published claim; what is measured is reported",
    statistic="centre of the gain by the right document over states, facts held out, learned retriever, less the "
    "centre of what the closed-book reader knows of the most frequent trained facts, tuned lens at the mask: below 0, "
    "and the half below a layer above (our rule; reported)",
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, "evidence", "memory"),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(CLOSED_BOOK, RETRIEVE_LEARNED),
)
