"""dynamics:V1. Share profiles of the stacks that read the text, under different seeds."""

from itertools import combinations

from .._chance import seeds_alone
from .._condition import Condition
from .._finding import Curves, Finding
from .._loss_change import halves_agree, own_over_others, profile_similarity
from .._model_group import OBJECTIVES
from .._sources import PARAMETER_CONTRIBUTIONS
from .._table import Reading

PAIRS = tuple(combinations(OBJECTIVES, 2))
WITHIN: dict[str, Reading] = {one.name: profile_similarity(one, one) for one in OBJECTIVES}
READS: dict[str, Reading] = WITHIN | {
    f"{one.name}, {other.name}": profile_similarity(one, other) for one, other in PAIRS
}


def test(curves: Curves) -> list[Condition]:
    return [own_over_others("similarity under two seeds of one objective, less that of two objectives", curves)]


FINDING = Finding(
    id="dynamics:V1",
    claim="The objective decides which parameters do the learning: two seeds of one objective are more alike than two "
    "objectives.",
    source=PARAMETER_CONTRIBUTIONS,
    published="objectives give distinct optimisation dynamics on comparable Transformers (no number in the abstract)",
    statistic=(
        "rank correlation of the shares of layers × components under different seeds: of every two objectives it is "
        "below "
        "that within either"
    ),
    reads=READS,
    test=test,
    controls=(seeds_alone(READS, tuple(WITHIN), tuple(f"{one.name}, {other.name}" for one, other in PAIRS)),),
    learned=OBJECTIVES,
    reliable=halves_agree(),
)
