"""dynamics:Z1. Two halves of the evaluated sentences; intervals over seeds."""

from itertools import combinations

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._loss_change import profile_similarity, reliability
from .._model_group import NAMES, OBJECTIVES
from .._sources import TRANSLATION_DYNAMICS
from .._table import Reading

PAIRS = tuple(combinations(OBJECTIVES, 2))
STATISTIC = "half correlation of groups without embeddings"
READS: dict[str, Reading] = {NAMES[one]: reliability(one, STATISTIC) for one in OBJECTIVES}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "correlation of the groups' totals on two halves of the sentences, embeddings left out",
            np.concatenate(list(curves.values()), axis=1),
            0.9,
            "correlation",
            list(curves),
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
            name="another objective in place of the other half (rank correlation of shares, different seeds)",
            reads={NAMES[one]: profile_similarity(*pair) for one, pair in zip(OBJECTIVES, PAIRS, strict=True)},
            decisive=False,  # ranks of other trainings lie lower by themselves
        ),
    ),
    learned=OBJECTIVES,
    uncontrolled="halves that say nothing of each other correlate by 0, whatever is trained",
)
