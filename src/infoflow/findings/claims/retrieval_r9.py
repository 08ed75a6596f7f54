"""retrieval:R-9. What is masked. The threshold is ours; the others mask as many tokens."""

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import found
from .._sources import REALM
from .._table import Reading, untrained
from .._zoo import RANDOM_SPANS, RANDOM_TOKENS, RETRIEVE_LEARNED

LEAST = 0.1
OTHERS = {"random tokens": RANDOM_TOKENS, "random spans": RANDOM_SPANS}
READS: dict[str, Reading] = {
    "salient": found(RETRIEVE_LEARNED),
    **{name: found(reader) for name, reader in OTHERS.items()},
}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            f"first passage right, salient spans masked less {name}", curves["salient"] - curves[name], LEAST, "share"
        )
        for name in OTHERS
    ]


FINDING = Finding(
    id="retrieval:R-9",
    claim="Masking salient spans matters for learning to search.",
    source=REALM,
    published="exact match 38.2, beside 32.3 (tokens) and 35.3 (spans); recall@5 38.5, beside 24.2 and 26.1 (table 2)",
    statistic=f"first passage right after equal updates: salient spans above random tokens and random spans by {LEAST} "
    "(our threshold)",
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, "salient", tuple(OTHERS)),
        # All arms begin with one reader and one retriever.
        Control(name="untrained models", reads=untrained(READS), decisive=False),
    ),
    learned=(RETRIEVE_LEARNED,),
)
