"""dynamics:L1. Shares of parameters, mean over the whole training."""

import numpy as np

from .._allocation import WindowMean
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import OBJECTIVE_NAMES, Reading
from .._sources import LOSS_CHANGE

OBJECTIVES = ("causal-lm", "masked-lm", "translation")
READS: dict[str, Reading] = {name: WindowMean(objective=name, column="helping") for name in OBJECTIVES}


def test(curves: Curves) -> list[Condition]:
    values = np.concatenate([curves[name] for name in OBJECTIVES], axis=1)
    labels = [OBJECTIVE_NAMES[name] for name in OBJECTIVES]
    # Chance lies below the upper limit too: that limit counts with the lower one.
    name, unit = "share that helps, of the parameters whose allocation is not 0", "share of parameters"
    return [
        Condition(name=name, values=values, labels=labels, threshold=0.5, unit=unit),
        Condition(name=name, values=values, labels=labels, threshold=0.6, unit=unit, side="below", alone=False),
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
        ),
    ),
    learned=OBJECTIVES,
)
