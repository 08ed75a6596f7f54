"""retrieval:R-7. Learned search and BM25.

The thresholds are ours. Where words are shared both may find everything: a learned retriever that is at most `TIE`
ahead counts as not better.
"""

from infoflow.results import Spec

from .._chance import seeds_alone
from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._retrieval import HELD_OUT, OWN, found, knows
from .._sources import RAG
from .._table import Reading, baselines
from .._zoo import RETRIEVE_BM25, RETRIEVE_FROZEN, RETRIEVE_LEARNED, SAME_BM25, SAME_LEARNED

AHEAD, TIE = 0.2, 0.02


def _both(reader: Spec, world: str) -> dict[str, Reading]:
    return {f"{world} hit": found(reader), f"{world} right": knows(reader, HELD_OUT, OWN)}


_BM25 = _both(RETRIEVE_BM25, "bm25 different") | _both(SAME_BM25, "bm25 same")
_SAME = _both(SAME_LEARNED, "same")
READS = _BM25 | _both(RETRIEVE_LEARNED, "different") | _SAME


def test(curves: Curves) -> list[Condition]:
    gap = {name: curves[name] - curves[f"bm25 {name}"] for name in curves if not name.startswith("bm25")}
    names = {"hit": "first passage right", "right": "answers right"}
    ahead = [
        exceeds(f"{name}, learned less BM25, other words", gap[f"different {what}"], AHEAD, "share")
        for what, name in names.items()
    ]
    return ahead + [
        stays_below(f"{name}, learned less BM25, same words", gap[f"same {what}"], TIE, "share", alone=False)
        for what, name in names.items()
    ]


FINDING = Finding(
    id="retrieval:R-7",
    claim="Learned dense search beats BM25 where questions use other words than passages, not where names decide.",
    source=RAG,
    published="RAG, dev: Natural Questions 43.5 and 44.0 beside 29.7 and 31.8 with BM25, FEVER 74.5 beside 75.1 (table "
    "6); DPR, top 20: 78.4 beside 59.1 on Natural Questions, 63.2 beside 68.8 on SQuAD",
    statistic=f"first passage right, and answers right on facts held out: learned above BM25 by {AHEAD} in a world of "
    f"other words, at most {TIE} in one of the same words (our thresholds)",
    reads=READS,
    test=test,
    controls=(
        seeds_alone(
            READS,
            {name: name for name in READS if not name.startswith("bm25 ")},
            {name: name.removeprefix("bm25 ") for name in READS if name.startswith("bm25 ")},
        ),
        Control(
            name="passages at random, and a guess",
            reads=_BM25 | _SAME | baselines(_both(RETRIEVE_LEARNED, "different")),
            decisive=False,
        ),
        Control(name="frozen retriever", reads=_BM25 | _SAME | _both(RETRIEVE_FROZEN, "different"), decisive=False),
    ),
    learned=(RETRIEVE_BM25, RETRIEVE_LEARNED, SAME_BM25, SAME_LEARNED),
)
