"""representations:V-18. Layers are 1..L."""

import numpy as np

from .._condition import Condition, stays_below
from .._curves import identity
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, NAMES, OBJECTIVES
from .._shapes import layer_names
from .._sources import LESSONS
from .._table import untrained

READS = untrained({NAMES[o]: identity(o) for o in OBJECTIVES})
TRAINED = identity(CAUSAL)


def test(curves: Curves) -> list[Condition]:
    losses = {name: curve[:, :1] - curve[:, 1:] for name, curve in curves.items()}
    layers = layer_names(next(iter(losses.values())).shape[1], 2)
    return [
        stays_below(
            "loss of identity neighbours from layer 1, untrained",
            np.concatenate(list(losses.values()), axis=1),
            0.02,
            "share of neighbours",
            [f"{layer}, {name}" for name in losses for layer in layers],
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
    learned=(CAUSAL,),
    minimum_seeds=1,
)
