"""dynamics:L6. Residuals of two rules on the same steps; intervals over seeds."""

import numpy as np

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._loss_change import reliability
from .._model_group import NAMES, OBJECTIVES
from .._sources import LOSS_CHANGE
from .._table import Reading

RULES = ("simpson", "first-order")
READS: dict[str, Reading] = {
    f"{one.name} {rule}": reliability(one, "mean residual", rule) for one in OBJECTIVES for rule in RULES
}


def test(curves: Curves) -> list[Condition]:
    simpson, first = (np.concatenate([curves[f"{one.name} {rule}"] for one in OBJECTIVES], axis=1) for rule in RULES)
    labels = [NAMES[one] for one in OBJECTIVES]
    return [
        stays_below(
            "mean residual of Simpson's rule",
            simpson,
            1e-3,
            "nats per step",
            labels,
            alone=False,  # where steps are small, first order passes too: it counts with the ratio of the two
        ),
        exceeds("residual of first order over that of Simpson's rule", first / simpson, 5.0, "ratio", labels),
    ]


FINDING = Finding(
    id="dynamics:L6",
    claim="Simpson's rule follows the loss closely from step to step; first order does not.",
    source=LOSS_CHANGE,
    published="an error of .001 per iteration is accepted in the code; that first order is inaccurate is unverified",
    statistic="Simpson's mean residual lies below .001 nats, and that of first order is over five times as large",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="first order in place of Simpson's rule",
            reads={
                f"{one.name} {rule}": reliability(one, "mean residual", "first-order")
                for one in OBJECTIVES
                for rule in RULES
            },
            decisive=False,
        ),
    ),
    learned=OBJECTIVES,
    uncontrolled="first order in its own place is 1 times itself, whatever the residuals are",
)
