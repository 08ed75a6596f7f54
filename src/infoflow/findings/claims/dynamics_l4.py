"""dynamics:L4. Of single parameters; intervals over seeds."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._loss_change import halves_agree, window_mean
from .._model_group import NAMES, OBJECTIVES
from .._sources import LOSS_CHANGE
from .._table import Reading

READS: dict[str, Reading] = {
    f"{one.name} {column}": window_mean(one, column) for one in OBJECTIVES for column in ("top_share", "alternated")
}
NORMAL = 0.0362  # what the largest 1 % of |x| make up of their sum in a normal distribution


def test(curves: Curves) -> list[Condition]:
    return [
        _each("part of the largest 1 % of |A| in their sum", curves, "top_share", 2 * NORMAL, "share of the sum"),
        _each(
            "parameters whose sign changed since the step before",
            curves,
            "alternated",
            0.1,
            "share of parameters",
            alone=False,  # signs by chance alternate too: it counts with the heavy tail
        ),
    ]


def _each(name: str, curves: Curves, column: str, threshold: float, unit: str, alone: bool = True) -> Condition:
    return exceeds(
        name,
        np.concatenate([curves[f"{one.name} {column}"] for one in OBJECTIVES], axis=1),
        threshold,
        unit,
        [NAMES[one] for one in OBJECTIVES],
        alone=alone,
    )


FINDING = Finding(
    id="dynamics:L4",
    claim="A few parameters carry much of each step's loss change, and parameters alternate between helping and "
    "hurting.",
    source=LOSS_CHANGE,
    published="heavy-tailed allocations and alternating parameters (unverified: not read at the source)",
    statistic=(
        "the largest 1 % of |A| make up more than twice what they do in a normal distribution (3.6 %), and more than a "
        "tenth of the moving parameters change sign from one step to the next"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="normally distributed allocations with signs by chance",
            reads=READS,
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
