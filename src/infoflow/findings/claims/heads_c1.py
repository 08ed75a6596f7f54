"""heads:C1. Heads of the masked LM that follow one dependency relation each."""

from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._heads import BestHeads
from .._reading import Reading, untrained
from .._sources import CLARK

_RELATIONS = {"determiners": ("det",), "objects": ("obj", "dobj"), "subjects": ("nsubj",), "adjectives": ("amod",)}

READS: dict[str, Reading] = {
    "gain": BestHeads(
        table="head_relations",
        objective="masked-lm",
        columns=tuple({"convention": "clark", "relation": relation} for relation in _RELATIONS.values()),
        less="baseline",
    )
}


def test(curves: Curves) -> list[Condition]:
    each = Condition(
        name="accuracy of the relation's best head above that of the best fixed offset",
        values=curves["gain"],
        labels=list(_RELATIONS),
        threshold=0.0,
        unit="share of words",
    )
    mean = Condition(
        name="the same, averaged over these relations",
        values=curves["gain"].mean(axis=1, keepdims=True),
        labels=["all of them"],
        threshold=0.1,
        unit="share of words",
    )
    return [each, mean]


FINDING = Finding(
    id="heads:C1",
    claim="Single heads of a masked LM find the head of a word in certain dependency relations, far better than a "
    "fixed offset does.",
    source=CLARK,
    published="BERT-base on Stanford Dependencies, best head over best offset, in per cent: det 94.3 over 51.7, dobj "
    "86.8 over 40.0, nsubj 58.5 over 45.5, amod 75.6 over 68.3; no head does well on all relations (34.5)",
    statistic=(
        "for determiners, objects, subjects and adjectives the best head (in the better direction) is above the best "
        "offset of -3 to 2, and by over ten points on average"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=("masked-lm",),
    minimum_seeds=1,
)
