"""objectives:O8. SpanBERT against the masked LM: coreference, a task on spans, and tags of words."""

from .._chance import seeds_alone
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import SPANBERT_PAPER
from .._stand_ins import PROBE, spans_and_words, spans_more_than_words
from .._table import untrained
from .._zoo import SPANBERT

READS = spans_and_words(SPANBERT, MASKED)


def test(curves: Curves) -> list[Condition]:
    return spans_more_than_words(curves, "SpanBERT over the masked LM")


FINDING = Finding(
    id="objectives:O8",
    claim="Masking spans and predicting them from their boundaries helps mainly in tasks on spans. End tasks are not "
    "trained: coreference stands in for those on spans, tags of words for others.",
    source=SPANBERT_PAPER,
    published="gains mainly in span selection tasks such as question answering and coreference (unverified)",
    statistic=(
        "share of mentions whose antecedent the best head attends to: SpanBERT above the masked LM, and by more than "
        f"in the tags of words ({PROBE})"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, *({f"{which} {what}": what for what in ("spans", "words")} for which in ("new", "old"))),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(SPANBERT, MASKED),
)
