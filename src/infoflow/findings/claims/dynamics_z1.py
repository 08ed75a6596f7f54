"""dynamics:Z1. Two halves of the evaluated sentences; intervals over seeds."""

import numpy as np

from .._allocation import Reliability
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import OBJECTIVE_NAMES, Reading
from .._sources import TRANSLATION_DYNAMICS

OBJECTIVES = ("causal-lm", "masked-lm", "translation")
STATISTIC = "half correlation of groups without embeddings"
READS: dict[str, Reading] = {name: Reliability(objective=name, statistic=STATISTIC) for name in OBJECTIVES}


def test(curves: Curves) -> list[Condition]:
    return [
        Condition(
            name="correlation of the groups' totals on two halves of the sentences, embeddings left out",
            values=np.concatenate([curves[name] for name in OBJECTIVES], axis=1),
            labels=[OBJECTIVE_NAMES[name] for name in OBJECTIVES],
            threshold=0.9,
            unit="correlation",
        )
    ]


FINDING = Finding(
    id="dynamics:Z1",
    claim="Loss change allocation on a sample of the training data says what the whole data would say.",
    source=TRANSLATION_DYNAMICS,
    published="allocation on a sample agrees with that on the full training set (abstract; no number)",
    statistic=(
        "totals of the groups of parameters, embeddings left out, on two disjoint halves of the evaluated sentences "
        "correlate above .9: a sample stands for another one, and so for the whole"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="groups of one half shuffled",
            reads=READS,
            transform=lambda curves: {name: np.zeros_like(curve) for name, curve in curves.items()},
        ),
    ),
    learned=OBJECTIVES,
)
