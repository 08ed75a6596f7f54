"""objectives:O7. Sentence order against next sentence: what either gives to coreference, beyond what it gives to words.

Tasks on pairs of sentences are not trained; coreference, which takes more than a word's neighbourhood, stands in for
them, and the tags of words for tasks on one sentence. The measure looks within sentences: what the claim says of
several sentences at once no table holds.
"""

from .._chance import seeds_alone
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._sources import ALBERT_PAPER
from .._stand_ins import PROBE, spans_and_words, spans_more_than_words
from .._table import untrained
from .._zoo import NEXT_SENTENCE, SENTENCE_ORDER

READS = spans_and_words(SENTENCE_ORDER, NEXT_SENTENCE)


def test(curves: Curves) -> list[Condition]:
    return spans_more_than_words(curves, "sentence order over next sentence")


FINDING = Finding(
    id="objectives:O7",
    claim="Judging the order of sentences helps with what spans several of them more than judging whether one follows "
    "does. Tasks on pairs of sentences are not trained: coreference stands in for them, tags of words for other tasks.",
    source=ALBERT_PAPER,
    published="SOP consistently helps downstream tasks with multi-sentence inputs (unverified)",
    statistic=(
        "share of mentions whose antecedent the best head attends to: with sentence order above next sentence, and by "
        f"more than in the tags of words ({PROBE})"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, *({f"{which} {what}": what for what in ("spans", "words")} for which in ("new", "old"))),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(SENTENCE_ORDER, NEXT_SENTENCE),
)
