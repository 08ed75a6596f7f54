"""dynamics:V3. Share profiles of the stacks that read the text, on several corpora and under different seeds."""

from itertools import combinations

from .._chance import seeds_alone
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._loss_change import corpus_similarity, own_over_others
from .._model_group import OBJECTIVES
from .._sources import PARAMETER_CONTRIBUTIONS
from .._table import Reading

PAIRS = tuple(combinations(OBJECTIVES, 2))
ACROSS: dict[str, Reading] = {one.name: corpus_similarity(one, one, "other") for one in OBJECTIVES}
READS: dict[str, Reading] = ACROSS | {
    f"{one.name}, {other.name}": corpus_similarity(one, other, "same") for one, other in PAIRS
}


def test(curves: Curves) -> list[Condition]:
    name = "similarity of one objective on two corpora, less that of two objectives on one corpus"
    return [own_over_others(name, curves)]


FINDING = Finding(
    id="dynamics:V3",
    claim="The dynamics depend on the objective, not on the size or the domain of the data: one objective on two "
    "corpora is more alike than two objectives on one corpus.",
    source=PARAMETER_CONTRIBUTIONS,
    published="Europarl against WMT, and 700 thousand, 2 and 5 million sentence pairs (slides), look alike",
    statistic=(
        "rank correlation of the shares of layers × components under different seeds, mean over pairs of corpora: of "
        "every two objectives on one corpus it is below that of either on two corpora"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, tuple(ACROSS), tuple(f"{one.name}, {other.name}" for one, other in PAIRS)),
        Control(
            name="two seeds of one objective on one corpus in place of two objectives",
            reads=ACROSS | {f"{one.name}, {other.name}": corpus_similarity(one, one, "same") for one, other in PAIRS},
            decisive=False,
        ),
    ),
    learned=OBJECTIVES,
)
