"""Claims about dynamics: L4, Z1."""

from itertools import combinations

import numpy as np

from infoflow.findings._condition import CORRELATION, Condition, exceeds
from infoflow.findings._finding import Control, Curves, claim
from infoflow.findings._model_group import NAMES, OBJECTIVES
from infoflow.findings._sources import LOSS_CHANGE_RECALLED, TRANSLATION_DYNAMICS
from infoflow.findings._table import Reading

from ._loss_change import halves_agree, profile_similarity, reliability, window_mean

_L4_READS: dict[str, Reading] = {
    f"{one.name} {column}": window_mean(one, column) for one in OBJECTIVES for column in ("top_share", "alternated")
}


NORMAL = 0.0362


def _each(name: str, curves: Curves, column: str, threshold: float, unit: str, alone: bool = True) -> Condition:
    return exceeds(
        name,
        np.concatenate([curves[f"{one.name} {column}"] for one in OBJECTIVES], axis=1),
        threshold,
        unit,
        [NAMES[one] for one in OBJECTIVES],
        alone=alone,
    )


@claim(
    "dynamics:L4",
    "A few parameters carry much of each step's loss change, and parameters alternate between helping and hurting.",
    source=LOSS_CHANGE_RECALLED,
    published="heavy-tailed allocations and alternating parameters (unverified: not read at the source)",
    statistic="the largest 1 % of |A| make up more than twice what they do in a normal distribution (3.6 %), and more "
    "than a tenth of the moving parameters change sign from one step to the next",
    reads=_L4_READS,
    controls=(
        Control(
            name="normally distributed allocations with signs by chance",
            reads=_L4_READS,
            transform=lambda curves: {
                name: np.full_like(curve, NORMAL if "top_share" in name else 0.5) for name, curve in curves.items()
            },
            decisive=False,
        ),
    ),
    learned=OBJECTIVES,
    reliable=halves_agree(parameters=True),
    uncontrolled="the share of a normal distribution, known exactly, is half of the limit",
)
def l4(curves: Curves) -> list[Condition]:
    """Signs of single parameters; intervals over seeds."""
    return [
        _each("part of the largest 1 % of |A| in their sum", curves, "top_share", 2 * NORMAL, "share of the sum"),
        _each(
            "parameters whose sign changed since the step before",
            curves,
            "alternated",
            0.1,
            "share of parameters",
            alone=False,  # random signs alternate too: it counts with the heavy tail
        ),
    ]


PAIRS = tuple(combinations(OBJECTIVES, 2))


STATISTIC = "half correlation of groups without embeddings"


_Z1_READS: dict[str, Reading] = {NAMES[one]: reliability(one, STATISTIC) for one in OBJECTIVES}


@claim(
    "dynamics:Z1",
    "Loss change allocation on a sample of the training data agrees with that on all of it.",
    source=TRANSLATION_DYNAMICS,
    published="allocation on a sample agrees with that on the full training set (abstract; no number)",
    statistic="totals of the groups of parameters, embeddings left out, on two disjoint halves of the evaluated "
    "sentences correlate above .9: one sample represents another, and so the whole",
    reads=_Z1_READS,
    controls=(
        Control(
            name="another objective instead of the other half (rank correlation of shares, different seeds)",
            reads={NAMES[one]: profile_similarity(*pair) for one, pair in zip(OBJECTIVES, PAIRS, strict=True)},
            decisive=False,  # ranks of other trainings are lower anyway
        ),
    ),
    learned=OBJECTIVES,
    uncontrolled="halves that say nothing of each other correlate by 0, whatever is trained",
)
def z1(curves: Curves) -> list[Condition]:
    """Two halves of the evaluated sentences; intervals over seeds."""
    return [
        exceeds(
            "correlation of the groups' totals on two halves of the sentences, embeddings left out",
            np.concatenate(list(curves.values()), axis=1),
            0.9,
            "correlation",
            list(curves),
            bounds=CORRELATION,
        )
    ]
