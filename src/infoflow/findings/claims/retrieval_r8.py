"""retrieval:R-8. Training the retriever."""

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import HELD_OUT, OWN, TRAINED, knows
from .._sources import RAG
from .._table import Reading, untrained
from .._zoo import RETRIEVE_FROZEN, RETRIEVE_LEARNED

READS: dict[str, Reading] = {
    f"{name} {facts}": knows(reader, facts, OWN)
    for facts in (TRAINED, HELD_OUT)
    for name, reader in (("learned", RETRIEVE_LEARNED), ("frozen", RETRIEVE_FROZEN))
}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            f"right answers, learned less frozen retriever, {facts} facts",
            curves[f"learned {facts}"] - curves[f"frozen {facts}"],
            0.0,
            "share",
            published=0.028,
        )
        for facts in (TRAINED, HELD_OUT)
    ]


FINDING = Finding(
    id="retrieval:R-8",
    claim="Training the retriever helps beyond a good start.",
    source=RAG,
    published="Natural Questions, dev: 44.0 beside 41.2 with a frozen retriever (RAG-Sequence), 43.5 beside 37.8 "
    "(RAG-Token; table 6)",
    statistic="right answers on trained facts and on facts held out: learned above frozen retriever",
    reads=READS,
    test=test,
    controls=(
        seeds_alone(
            READS, *({f"{name} {facts}": facts for facts in (TRAINED, HELD_OUT)} for name in ("learned", "frozen"))
        ),
        # All arms begin with one reader and one retriever.
        Control(name="untrained models", reads=untrained(READS), decisive=False),
    ),
    learned=(RETRIEVE_FROZEN, RETRIEVE_LEARNED),
)
