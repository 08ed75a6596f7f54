"""dynamics:V3. Share profiles of the stacks that read the text, on several corpora and under different seeds."""

from itertools import combinations
from typing import Literal

import numpy as np

from .._allocation import MAIN_STACK, CorpusSimilarity
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import OBJECTIVE_NAMES, Objective, Reading
from .._sources import PARAMETER_CONTRIBUTIONS

OBJECTIVES: tuple[Objective, ...] = ("causal-lm", "masked-lm", "translation")
PAIRS = tuple(combinations(OBJECTIVES, 2))


def _similarity(first: Objective, second: Objective, corpora: Literal["same", "other"]) -> CorpusSimilarity:
    return CorpusSimilarity(first=(first, MAIN_STACK[first]), second=(second, MAIN_STACK[second]), corpora=corpora)


ACROSS: dict[str, Reading] = {name: _similarity(name, name, "other") for name in OBJECTIVES}
READS: dict[str, Reading] = ACROSS | {f"{one}, {other}": _similarity(one, other, "same") for one, other in PAIRS}


def test(curves: Curves) -> list[Condition]:
    gaps = [curves[own] - curves[f"{one}, {other}"] for one, other in PAIRS for own in (one, other)]
    return [
        Condition(
            name="similarity of one objective on two corpora, less that of two objectives on one corpus",
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
        Control(
            name="two seeds of one objective on one corpus in place of two objectives",
            reads=ACROSS | {f"{one}, {other}": _similarity(one, one, "same") for one, other in PAIRS},
        ),
    ),
    learned=OBJECTIVES,
)
