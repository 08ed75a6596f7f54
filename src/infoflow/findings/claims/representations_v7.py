"""representations:V-7. Layers are 2..L: at layer 1 the published curves say the contrary."""

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._curves import TASK_DISTANCES
from .._finding import Control, Curves, Finding
from .._model_group import OBJECTIVES
from .._shapes import layer_names
from .._sources import BOTTOM_UP
from .._table import baselines, untrained

CLOSEST, *OTHERS = TASK_DISTANCES


def test(curves: Curves) -> list[Condition]:
    gaps = [curves[other][:, 1:] - curves[CLOSEST][:, 1:] for other in OTHERS]
    layers = layer_names(gaps[0].shape[1], 2)
    return [
        exceeds(
            f"distance of another pair minus distance {CLOSEST}",
            np.concatenate(gaps, axis=1),
            0.0,
            "1 − PWCCA",
            [f"{layer}, {other}" for other in OTHERS for layer in layers],
            published=0.008,
        )
    ]


FINDING = Finding(
    id="representations:V-7",
    claim="From layer 2 on, translation and masked-LM encoders are closest to each other, and the causal LM is apart.",
    source=BOTTOM_UP,
    published=(
        "layer 2: .430 (translation–masked LM) against .475 and .438; layer 6: .535 against .603 and .603; not at "
        "layer 1: .423 against .408"
    ),
    statistic="at every layer from 2 on, the distance translation–masked LM lies below both distances to the causal LM",
    reads=TASK_DISTANCES,
    test=test,
    controls=(
        seeds_alone(TASK_DISTANCES, *TASK_DISTANCES),
        Control(name="shuffled rows", reads=baselines(TASK_DISTANCES)),
        # Decides nothing: matched models start with one and the same encoder, and only the causal LM's mask differs.
        Control(
            name="untrained models (translation and masked LM are one encoder before training)",
            reads=untrained(TASK_DISTANCES),
            decisive=False,
        ),
    ),
    learned=OBJECTIVES,
)
