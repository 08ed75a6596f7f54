"""dynamics:L2. Layers as sums over their components."""

import numpy as np

from .._chance import layers_in_any_order
from .._condition import Condition, stays_below
from .._finding import Control, Curves, Finding
from .._loss_change import COMPONENTS, components_by_layer, halves_agree, profile
from .._model_group import NAMES, OBJECTIVES, TRANSLATION
from .._shapes import layer_names
from .._sources import LOSS_CHANGE
from .._table import Reading, baselines

READS: dict[str, Reading] = {
    **{NAMES[one]: profile(one) for one in OBJECTIVES},
    "translation decoder": profile(TRANSLATION, "decoder"),
}


def test(curves: Curves) -> list[Condition]:
    totals = {name: components_by_layer(curve).sum(axis=2) for name, curve in curves.items()}
    return [
        stays_below(
            "share of some layer in the loss change of its stack",
            np.concatenate(list(totals.values()), axis=1),
            0.0,
            "share",
            [f"{name}, {layer}" for name, total in totals.items() for layer in layer_names(total.shape[1], 0)],
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
    controls=(
        layers_in_any_order(READS, numbers=len(COMPONENTS)),
        # The same share for every layer.
        Control(name="the same allocation for every parameter", reads=baselines(READS), decisive=False),
    ),
    learned=OBJECTIVES,
    reliable=halves_agree(),
)
