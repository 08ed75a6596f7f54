"""representations:V-6. Layers are 1..L."""

from itertools import product

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._curves import SEED_DISTANCES, TASK_DISTANCES
from .._finding import Control, Curves, Finding
from .._model_group import OBJECTIVES
from .._shapes import layer_names
from .._sources import BOTTOM_UP
from .._table import untrained

READS = {**TASK_DISTANCES, **SEED_DISTANCES}


def test(curves: Curves) -> list[Condition]:
    """The largest of the seed distances below the smallest of the task distances: every task above every seed."""
    pairs = list(product(TASK_DISTANCES, SEED_DISTANCES))
    gaps = np.concatenate([curves[task] - curves[seed] for task, seed in pairs], axis=1)
    layers = layer_names(curves[pairs[0][0]].shape[1], 1)
    return [
        exceeds(
            "distance between objectives minus distance between seeds",
            gaps,
            0.02,
            "1 − PWCCA",
            [f"{layer}, {task} against {seed}" for task, seed in pairs for layer in layers],
            published=0.076,
        )
    ]


FINDING = Finding(
    id="representations:V-6",
    claim="The objective shapes representations more than the random initialisation does.",
    source=BOTTOM_UP,
    published="at layer 1 at most .332 between seeds and at least .408 between objectives; at layer 6 .370 and .535",
    statistic=(
        "at every layer the largest mean distance between seeds of one objective lies below the smallest distance "
        "between objectives, by over .02"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, tuple(TASK_DISTANCES), tuple(SEED_DISTANCES)),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=OBJECTIVES,
)
