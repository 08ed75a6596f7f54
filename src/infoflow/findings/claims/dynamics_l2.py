"""dynamics:L2. Layers as sums over their components."""

import numpy as np

from .._allocation import MAIN_STACK, Profile, by_layer
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import OBJECTIVE_NAMES, Reading, baselines
from .._shapes import layer_names
from .._sources import LOSS_CHANGE

OBJECTIVES = ("causal-lm", "masked-lm", "translation")
READS: dict[str, Reading] = {
    **{OBJECTIVE_NAMES[name]: Profile(objective=name, stack=MAIN_STACK[name]) for name in OBJECTIVES},
    "translation decoder": Profile(objective="translation", stack="decoder"),
}


def test(curves: Curves) -> list[Condition]:
    totals = {name: by_layer(curve).sum(axis=2) for name, curve in curves.items()}
    return [
        Condition(
            name="share of some layer in the loss change of its stack",
            values=np.concatenate(list(totals.values()), axis=1),
            labels=[f"{name}, {layer}" for name, total in totals.items() for layer in layer_names(total.shape[1], 0)],
            threshold=0.0,
            unit="share",
            side="below",
            over="any",
        )
    ]


FINDING = Finding(
    id="dynamics:L2",
    claim="Whole layers can hurt: summed over training, they raise the loss that the others lower.",
    source=LOSS_CHANGE,
    published=(
        "some layers hurt overall, moving against the training gradient (the last layer of a ResNet: unverified; "
        "explained by a phase lag in oscillation: the table allocation_lags, where a plan asks for it, has the cosines)"
    ),
    statistic="some layer of some stack has a negative share in the loss change of its stack",
    reads=READS,
    test=test,
    controls=(Control(name="the same allocation for every parameter", reads=baselines(READS)),),
    learned=OBJECTIVES,
)
