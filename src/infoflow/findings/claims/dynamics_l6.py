"""dynamics:L6. Residuals of two rules on the same steps; intervals over seeds."""

import numpy as np

from .._allocation import Reliability
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import OBJECTIVE_NAMES, Reading
from .._sources import LOSS_CHANGE

OBJECTIVES = ("causal-lm", "masked-lm", "translation")
RULES = ("simpson", "first-order")
READS: dict[str, Reading] = {
    f"{name} {rule}": Reliability(objective=name, statistic="mean residual", rule=rule)
    for name in OBJECTIVES
    for rule in RULES
}


def test(curves: Curves) -> list[Condition]:
    simpson, first = (np.concatenate([curves[f"{name} {rule}"] for name in OBJECTIVES], axis=1) for rule in RULES)
    labels = [OBJECTIVE_NAMES[name] for name in OBJECTIVES]
    return [
        Condition(
            name="mean residual of Simpson's rule",
            values=simpson,
            labels=labels,
            threshold=1e-3,
            unit="nats per step",
            side="below",
            alone=False,  # where steps are small, first order passes too: it counts with the ratio of the two
        ),
        Condition(
            name="residual of first order over that of Simpson's rule",
            values=first / simpson,
            labels=labels,
            threshold=5.0,
            unit="ratio",
        ),
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
                f"{name} {rule}": Reliability(objective=name, statistic="mean residual", rule="first-order")
                for name in OBJECTIVES
                for rule in RULES
            },
        ),
    ),
    learned=OBJECTIVES,
)
