"""dynamics:L3. Common peaks of layers; intervals over seeds."""

import numpy as np

from .._allocation import MAIN_STACK, Synchrony
from .._condition import SHARE, Condition
from .._finding import Control, Curves, Finding
from .._reading import OBJECTIVE_NAMES, Reading, baselines
from .._sources import LOSS_CHANGE

OBJECTIVES = ("causal-lm", "masked-lm", "translation")
READS: dict[str, Reading] = {name: Synchrony(objective=name, stack=MAIN_STACK[name]) for name in OBJECTIVES}


def test(curves: Curves) -> list[Condition]:
    return [
        Condition(
            name="share of a layer's peaks that are peaks of another layer too",
            values=np.concatenate([curves[name] for name in OBJECTIVES], axis=1),
            labels=[OBJECTIVE_NAMES[name] for name in OBJECTIVES],
            threshold=0.5,
            unit="share of peaks",
            bounds=SHARE,
        )
    ]


FINDING = Finding(
    id="dynamics:L3",
    claim="Layers learn at the same moments: their loss changes peak together.",
    source=LOSS_CHANGE,
    published="learning is synchronised over layers, with peaks often in the same iteration (no number)",
    statistic=(
        "share of common peaks, mean over pairs of layers, above one half in every objective; a peak is a window that "
        "lowered the loss more than both neighbouring ones"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="each layer's series turned round by a random number of windows", reads=baselines(READS)),),
    learned=OBJECTIVES,
)
