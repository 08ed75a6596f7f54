"""heads:C1. Heads of the masked LM that follow one dependency relation each."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._head_numbers import best_heads, heads
from .._model_group import MASKED
from .._sources import CLARK
from .._table import Reading, untrained

_RELATIONS = {"determiners": ("det",), "objects": ("obj", "dobj"), "subjects": ("nsubj",), "adjectives": ("amod",)}

READS: dict[str, Reading] = {
    "gain": best_heads(
        *(heads("head_relations", MASKED, convention="clark", relation=relation) for relation in _RELATIONS.values()),
        less="baseline",
    )
}


def test(curves: Curves) -> list[Condition]:
    each = exceeds(
        "accuracy of the relation's best head above that of the best fixed offset",
        curves["gain"],
        0.0,
        "share of words",
        list(_RELATIONS),
        published=0.073,
    )
    mean = exceeds(
        "the same, averaged over these relations",
        curves["gain"].mean(axis=1, keepdims=True),
        0.1,
        "share of words",
        published=0.274,
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
    learned=(MASKED,),
    minimum_seeds=1,
)
