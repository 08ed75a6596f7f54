"""heads:C2. The masked LM's attention, all heads together, holds syntax."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._head_numbers import best_heads
from .._model_group import MASKED
from .._sources import CLARK
from .._table import Reading, Table, untrained


def _score(probe: str, less: str = "") -> Reading:
    return best_heads(Table("head_probe", MASKED, known=True).where(probe=(probe,)), less=less)


READS: dict[str, Reading] = {
    "attention": _score("attention", less="baseline"),
    "words": _score("attention+words"),
    "distance": _score("distance+words"),
}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "unlabelled attachment of the attention-only probe above that of the word beside",
            curves["attention"],
            0.0,
            "share of words",
            published=0.35,
        ),
        exceeds(
            "the attention-and-words probe above the distance-and-words probe",
            curves["words"] - curves["distance"],
            0.0,
            "share of words",
            published=0.19,
        ),
    ]


FINDING = Finding(
    id="heads:C2",
    claim="The attention of all heads of a masked LM together holds much of a sentence's dependency tree.",
    source=CLARK,
    published="unlabelled attachment score on the Penn Treebank, in per cent: attention 61, attention and GloVe 77, "
    "distances and GloVe 58, an untrained BERT and GloVe 30, right-branching 26",
    statistic=(
        "a linear combination of attention maps attaches more words rightly than attaching each to the word beside "
        "it (on the better side) does, and attention with word vectors more than distances with word vectors"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=(MASKED,),
    minimum_seeds=1,
)
