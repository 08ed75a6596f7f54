"""dynamics:V8. Heads of self-attention; intervals over seeds."""

import numpy as np

from .._allocation import MAIN_STACK, HeadSpread
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import OBJECTIVE_NAMES, Reading, baselines
from .._sources import PARAMETER_CONTRIBUTIONS

OBJECTIVES = ("causal-lm", "masked-lm", "translation")
READS: dict[str, Reading] = {name: HeadSpread(objective=name, stack=MAIN_STACK[name]) for name in OBJECTIVES}


def test(curves: Curves) -> list[Condition]:
    return [
        Condition(
            name="standard deviation over the heads of a layer beyond noise, over their mean absolute contribution",
            values=np.concatenate([curves[name] for name in OBJECTIVES], axis=1),
            labels=[OBJECTIVE_NAMES[name] for name in OBJECTIVES],
            threshold=0.25,
            unit="ratio",
        )
    ]


FINDING = Finding(
    id="dynamics:V8",
    claim="The heads of a layer contribute unequally to the loss change.",
    source=PARAMETER_CONTRIBUTIONS,
    published="maps of layers × heads, normalised over the map (slides; how exactly is unverified; no number)",
    statistic=(
        "the standard deviation over the heads of a layer, less what the choice of sentences explains, exceeds a "
        "quarter of "
        "their mean absolute contribution, in the mean over layers and in every objective"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="equal heads that differ by the choice of sentences alone", reads=baselines(READS)),),
    learned=OBJECTIVES,
)
