"""dynamics:L3. Common peaks of layers; intervals over seeds."""

import numpy as np

from .._condition import SHARE, Condition, exceeds
from .._finding import Control, Curves, Finding
from .._loss_change import halves_agree, synchrony
from .._model_group import NAMES, OBJECTIVES
from .._sources import LOSS_CHANGE
from .._table import Reading

READS: dict[str, Reading] = {NAMES[one]: synchrony(one) for one in OBJECTIVES}
TURNED: dict[str, Reading] = {NAMES[one]: synchrony(one, turned=True) for one in OBJECTIVES}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "share of a layer's peaks that are peaks of another layer too",
            np.concatenate(list(curves.values()), axis=1),
            0.5,
            "share of peaks",
            list(curves),
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
    controls=(Control(name="each layer's series turned round by a random number of windows", reads=TURNED),),
    learned=OBJECTIVES,
    reliable=halves_agree(),
)
