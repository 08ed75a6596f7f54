"""dynamics:V8. Heads of self-attention; intervals over seeds."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._loss_change import halves_agree, head_spread
from .._model_group import NAMES, OBJECTIVES
from .._sources import PARAMETER_CONTRIBUTIONS
from .._table import Reading, baselines

READS: dict[str, Reading] = {NAMES[one]: head_spread(one) for one in OBJECTIVES}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "standard deviation over the heads of a layer beyond noise, over their mean absolute contribution",
            np.concatenate(list(curves.values()), axis=1),
            0.25,
            "ratio",
            list(curves),
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
    reliable=halves_agree(),
)
