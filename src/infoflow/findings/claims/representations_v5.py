"""representations:V-5. Layers are 0..L; the masked LM sees inputs corrupted as in training."""

import numpy as np

from .._condition import Condition, exceeds
from .._curves import LANGUAGE_MODEL_INFORMATION as READS
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, MASKED
from .._shapes import total_fall
from .._sources import BOTTOM_UP
from .._table import Reading, baselines, untrained

# In a control only the masked LM is replaced: a ratio of two changes that are both noise would mean nothing.
REPLACED: dict[str, Reading] = {name: reading for name, reading in READS.items() if name.startswith("masked")}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "change of the masked LM over change of the causal LM",
            _change(curves, "masked") / _change(curves, "causal"),
            1.5,
            "ratio",
            published=4.1,
        )
    ]


def _change(curves: Curves, model: str) -> np.ndarray:
    """What input and output information change from layer 0 to the top, without sign, summed."""
    return abs(total_fall(curves[f"{model} input"])) + abs(total_fall(curves[f"{model} output"]))


FINDING = Finding(
    id="representations:V-5",
    claim=(
        "The stages of losing the input and building the prediction are more distinct in a masked LM than in a causal "
        "LM."
    ),
    source=BOTTOM_UP,
    published=(
        "changes from layer 0 to 6, input and output together: 7.6 nats (masked LM, as in training) and 1.87 (causal "
        "LM), a ratio of 4.1"
    ),
    statistic=(
        "absolute change of the information about the input plus that about the output, layer 0 to the top: masked LM "
        "(inputs as in training) over causal LM above 1.5"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="masked LM with shuffled labels", reads={**READS, **baselines(REPLACED)}),
        Control(name="untrained masked LM", reads={**READS, **untrained(REPLACED)}),
    ),
    learned=(CAUSAL, MASKED),
)
