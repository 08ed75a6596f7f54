"""dynamics:V7. The last step in which a component, summed over layers, hurt; intervals over seeds."""

import numpy as np

from .._allocation import ATTENTION, FEED_FORWARD, BlockHurts
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading
from .._sources import PARAMETER_CONTRIBUTIONS

BLOCKS = (*ATTENTION, *FEED_FORWARD)
CAUSAL = BlockHurts(objective="causal-lm", stack="decoder", components=BLOCKS, column="last_hurt")
READS: dict[str, Reading] = {
    "causal": CAUSAL,
    "masked": BlockHurts(objective="masked-lm", stack="encoder", components=BLOCKS, column="last_hurt"),
    "encoder": BlockHurts(objective="translation", stack="encoder", components=BLOCKS, column="last_hurt"),
    "decoder": BlockHurts(objective="translation", stack="decoder", components=BLOCKS, column="last_hurt"),
}


def test(curves: Curves) -> list[Condition]:
    causal, masked = (curves[name].max(axis=1, keepdims=True) for name in ("causal", "masked"))
    translation = np.maximum(curves["encoder"], curves["decoder"]).max(axis=1, keepdims=True)
    return [
        _later("the masked LM's last hurting step after translation's", masked - translation),
        _later("translation's last hurting step after the causal LM's", translation - causal),
    ]


def _later(name: str, values: np.ndarray) -> Condition:
    return Condition(name=name, values=values, labels=["any component"], threshold=0.0, unit="share of the training")


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
    controls=(Control(name="causal LM in place of all", reads=dict.fromkeys(READS, CAUSAL)),),
    learned=("causal-lm", "masked-lm", "translation"),
)
