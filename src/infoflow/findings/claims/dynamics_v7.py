"""dynamics:V7. The last step in which a component, summed over layers, hurt; intervals over seeds."""

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._finding import Curves, Finding
from .._loss_change import halves_agree, last_hurting
from .._model_group import CAUSAL, MASKED, OBJECTIVES, TRANSLATION
from .._sources import PARAMETER_CONTRIBUTIONS
from .._table import Reading

READS: dict[str, Reading] = {
    "causal": last_hurting(CAUSAL),
    "masked": last_hurting(MASKED),
    "translation": last_hurting(TRANSLATION),
}


def test(curves: Curves) -> list[Condition]:
    causal, masked, translation = (curves[name] for name in ("causal", "masked", "translation"))
    return [
        _later("the masked LM's last hurting step after translation's", masked - translation),
        _later("translation's last hurting step after the causal LM's", translation - causal),
    ]


def _later(name: str, values: np.ndarray) -> Condition:
    return exceeds(name, values, 0.0, "share of the training")


FINDING = Finding(
    id="dynamics:V7",
    claim="Components stop hurting first in causal language modelling, then in translation, last in masked modelling.",
    source=PARAMETER_CONTRIBUTIONS,
    published=(
        "last of 125,000 steps in which a component hurt (slides): causal LM 1,072, translation 2,673, masked LM "
        "59,727; "
        "largest loss change of a component 5.58 (key), 95 (W2), 68.18 (value)"
    ),
    statistic=(
        "the last step in which any component, summed over layers, hurt, as a share of the training: masked LM after "
        "translation after causal LM"
    ),
    reads=READS,
    test=test,
    controls=(seeds_alone(READS, *READS),),
    learned=OBJECTIVES,
    reliable=halves_agree(),
)
