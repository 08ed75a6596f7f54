"""representations:V-8. Layers are 1..L."""

import numpy as np

from .._condition import Condition, exceeds
from .._curves import SEED_DISTANCES, TASK_DISTANCES
from .._finding import Control, Curves, Finding
from .._model_group import OBJECTIVES
from .._shapes import falls, step_names, total_fall
from .._sources import BOTTOM_UP
from .._table import baselines


def test(curves: Curves) -> list[Condition]:
    steps = {pair: -falls(curves[pair]) for pair in TASK_DISTANCES}
    layers = step_names(next(iter(steps.values())).shape[1], 1)
    return [
        exceeds(
            "growth of the distance between two objectives, layer 1 to the top",
            np.concatenate([-total_fall(curves[pair]) for pair in TASK_DISTANCES], axis=1),
            0.03,
            "1 − PWCCA",
            list(TASK_DISTANCES),
            published=0.112,
        ),
        exceeds(
            "growth at every layer",
            np.concatenate(list(steps.values()), axis=1),
            0.0,
            "1 − PWCCA",
            [f"{layer}, {pair}" for pair in steps for layer in layers],
            published=0.007,
        ),
    ]


FINDING = Finding(
    id="representations:V-8",
    claim="Representations of different objectives diverge with depth.",
    source=BOTTOM_UP,
    published=(
        "growth from layer 1 to 6: +.112 (translation–masked LM), +.151 (causal LM–translation), +.195 (causal "
        "LM–masked LM); between seeds +.007, +.038 and +.113"
    ),
    statistic="each distance between objectives grows at every layer, and from layer 1 to the top by over .03",
    reads=TASK_DISTANCES,
    test=test,
    controls=(
        Control(name="seeds of one objective", reads=dict(zip(TASK_DISTANCES, SEED_DISTANCES.values(), strict=True))),
        Control(name="shuffled rows", reads=baselines(TASK_DISTANCES)),
    ),
    learned=OBJECTIVES,
)
