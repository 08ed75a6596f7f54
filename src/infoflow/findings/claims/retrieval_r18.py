"""retrieval:R-18. Whom readers believe. The thresholds are ours."""

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import TRAINED, followed, knows
from .._sources import KNOWLEDGE_CONFLICTS
from .._table import Reading, untrained
from .._zoo import CLOSED_BOOK, RETRIEVE_LEARNED

RATIO, RIGHT = 0.5, 0.2
_OF = {"closed": CLOSED_BOOK, "learned": RETRIEVE_LEARNED}
READS: dict[str, Reading] = {
    **{f"{name} ratio": followed(reader) for name, reader in _OF.items()},
    "slope": followed(CLOSED_BOOK, slope=True),
    **{f"{name} random": knows(reader, TRAINED, "random") for name, reader in _OF.items()},
}


def test(curves: Curves) -> list[Condition]:
    ratio = curves["closed ratio"] - curves["learned ratio"]
    right = curves["closed random"] - curves["learned random"]
    return [
        exceeds("memorisation ratio, closed-book less learned retriever", ratio, RATIO, ""),
        exceeds("its slope over the logarithm of exposure, closed-book reader", curves["slope"], 0.0, "", alone=False),
        exceeds("right answers beside a random document, closed-book less learned retriever", right, RIGHT, "share"),
    ]


FINDING = Finding(
    id="retrieval:R-18",
    claim="Readers trained with retrieval follow the document, others their memory; the more so the oftener a fact was "
    "seen.",
    source=KNOWLEDGE_CONFLICTS,
    published="memorisation ratios differ much between models and grow with how often a fact was seen (as summarised)",
    statistic=f"documents that contradict a trained fact: memorisation ratio of the closed-book reader above the "
    f"other's by {RATIO}, rising with exposure; right answers beside a random document above by {RIGHT} (our "
    "thresholds)",
    reads=READS,
    test=test,
    controls=(
        seeds_alone(
            READS,
            *(
                {f"{name} {what}": what for what in ("ratio", "random")}
                | ({"slope": "slope"} if name == "closed" else {})
                for name in _OF
            ),
        ),
        # All arms begin with one reader and one retriever.
        Control(name="untrained models", reads=untrained(READS), decisive=False),
    ),
    learned=(CLOSED_BOOK, RETRIEVE_LEARNED),
)
