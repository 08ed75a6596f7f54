"""representations:V-18. Layers are 1..L."""

from dataclasses import replace

import numpy as np

from .._condition import Condition
from .._curves import identity
from .._finding import Control, Curves, Finding
from .._reading import OBJECTIVE_NAMES, Objective
from .._shapes import layer_names
from .._sources import LESSONS

OBJECTIVES: tuple[Objective, ...] = ("causal-lm", "masked-lm", "translation")
READS = {OBJECTIVE_NAMES[o]: replace(identity(o), trained=False) for o in OBJECTIVES}
TRAINED = identity("causal-lm")


def test(curves: Curves) -> list[Condition]:
    losses = {name: curve[:, :1] - curve[:, 1:] for name, curve in curves.items()}
    layers = layer_names(next(iter(losses.values())).shape[1], 2)
    return [
        Condition(
            name="loss of identity neighbours from layer 1, untrained",
            values=np.concatenate(list(losses.values()), axis=1),
            labels=[f"{layer}, {name}" for name in losses for layer in layers],
            threshold=0.02,
            unit="share of neighbours",
            side="below",
        )
    ]


FINDING = Finding(
    id="representations:V-18",
    claim="An untrained network keeps the identity of its tokens through all its layers.",
    source=LESSONS,
    published="no number for this measure; a trained causal LM falls from .992 to .768",
    statistic=(
        "share of the 50 nearest neighbours that are the same token, untrained models: no layer lies .02 or more "
        "below layer 1"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="trained causal LM, which must lose it", reads=dict.fromkeys(READS, TRAINED)),),
    learned=("causal-lm",),
    minimum_seeds=1,
)
