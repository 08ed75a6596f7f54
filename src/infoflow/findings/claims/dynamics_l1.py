"""dynamics:L1. Shares of parameters, mean over the whole training."""

import numpy as np

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._loss_change import halves_agree, window_mean
from .._model_group import NAMES, OBJECTIVES
from .._sources import LOSS_CHANGE
from .._table import Reading

READS: dict[str, Reading] = {NAMES[one]: window_mean(one, "helping") for one in OBJECTIVES}


def test(curves: Curves) -> list[Condition]:
    values, labels = np.concatenate(list(curves.values()), axis=1), list(curves)
    # Chance lies below the upper limit too: that limit counts with the lower one.
    name, unit = "share that helps, of the parameters whose allocation is not 0", "share of parameters"
    return [
        exceeds(name, values, 0.5, unit, labels),
        stays_below(name, values, 0.6, unit, labels, alone=False),
    ]


FINDING = Finding(
    id="dynamics:L1",
    claim="Barely over half of the parameters help in any step of training.",
    source=LOSS_CHANGE,
    published="barely over 50 % of parameters help in any iteration",
    statistic=(
        "of the parameters whose allocation is not 0, the mean share that lowered the loss lies between 50 % and 60 % "
        "in "
        "every objective"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="signs by chance",
            reads=READS,
            transform=lambda curves: {name: np.full_like(curve, 0.5) for name, curve in curves.items()},
            decisive=False,
        ),
    ),
    learned=OBJECTIVES,
    reliable=halves_agree(parameters=True),
    uncontrolled="signs by chance help in half of the cases, which is the limit itself",
)
