"""objectives:O10. The distilled model beside its teacher: what it keeps, and how many parameters it has.

How much faster it runs no table says: parameters and layers are counted, seconds of inference are not.
"""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import DISTILBERT
from .._stand_ins import PROBE, STANDS_IN, parameters, probe
from .._table import Reading
from .._zoo import DISTILLATION

READS: dict[str, Reading] = {
    "student": probe(DISTILLATION, beyond_chance=True),
    "teacher": probe(MASKED, beyond_chance=True),
    "student parameters": parameters(DISTILLATION),
    "teacher parameters": parameters(MASKED),
}


def test(curves: Curves) -> list[Condition]:
    kept = curves["student"] / curves["teacher"]
    return [
        exceeds(
            "share of the teacher's score beyond chance that the student keeps", kept, 0.95, "share", published=0.97
        ),
        exceeds(
            "share of the teacher's parameters that it goes without",
            1 - curves["student parameters"] / curves["teacher parameters"],
            0.25,
            "share",
            published=0.4,
            alone=False,  # by construction
        ),
    ]


FINDING = Finding(
    id="objectives:O10",
    claim="A student of half the layers keeps nearly all that its teacher knows with far fewer parameters. "
    f"{STANDS_IN}",
    source=DISTILBERT,
    published="40 % fewer parameters, over 95 % (97 %) of BERT's performances, 60 % faster",
    statistic=(
        f"{PROBE}, less that of random neighbours: the student above 95 % of the teacher, and it has a quarter fewer "
        "parameters (at small sizes embeddings weigh more than in the published model). Speed is not measured"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="the student as initialised beside the trained teacher",
            reads=READS | {"student": READS["student"].changed(trained=False)},
        ),
    ),
    learned=(DISTILLATION, MASKED),
)
