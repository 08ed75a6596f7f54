"""dynamics:V1. Share profiles of the stacks that read the text, under different seeds."""

from itertools import combinations

import numpy as np

from .._allocation import MAIN_STACK, ProfileSimilarity
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import OBJECTIVE_NAMES, Objective, Reading
from .._sources import PARAMETER_CONTRIBUTIONS

OBJECTIVES: tuple[Objective, ...] = ("causal-lm", "masked-lm", "translation")
PAIRS = tuple(combinations(OBJECTIVES, 2))


def _similarity(first: Objective, second: Objective) -> ProfileSimilarity:
    return ProfileSimilarity(first=(first, MAIN_STACK[first]), second=(second, MAIN_STACK[second]))


WITHIN: dict[str, Reading] = {name: _similarity(name, name) for name in OBJECTIVES}
READS: dict[str, Reading] = WITHIN | {f"{one}, {other}": _similarity(one, other) for one, other in PAIRS}


def test(curves: Curves) -> list[Condition]:
    gaps = [curves[own] - curves[f"{one}, {other}"] for one, other in PAIRS for own in (one, other)]
    return [
        Condition(
            name="similarity under two seeds of one objective, less that of two objectives",
            values=np.concatenate(gaps, axis=1),
            labels=[
                f"{OBJECTIVE_NAMES[own]}, over {OBJECTIVE_NAMES[one]} and {OBJECTIVE_NAMES[other]}"
                for one, other in PAIRS
                for own in (one, other)
            ],
            threshold=0.0,
            unit="rank correlation",
        )
    ]


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
    controls=(
        Control(
            name="two seeds of one objective in place of two objectives",
            reads=WITHIN | {f"{one}, {other}": _similarity(one, one) for one, other in PAIRS},
        ),
    ),
    learned=OBJECTIVES,
)
