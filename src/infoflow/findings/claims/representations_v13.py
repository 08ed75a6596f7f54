"""representations:V-13. The top layer."""

import numpy as np

from .._condition import Condition
from .._curves import identity
from .._finding import Control, Curves, Finding
from .._reading import baselines, untrained
from .._sources import BOTTOM_UP

READS = {"causal": identity("causal-lm"), "masked": identity("masked-lm"), "translation": identity("translation")}


def test(curves: Curves) -> list[Condition]:
    causal, masked, translation = (curves[name][:, -1:] for name in ("causal", "masked", "translation"))
    return [
        Condition(
            name="gap of the share of neighbours with the same token, top layer",
            values=np.concatenate([masked - translation, translation - causal], axis=1),
            labels=["masked LM over translation", "translation over causal LM"],
            threshold=0.015,
            unit="share of neighbours",
        )
    ]


FINDING = Finding(
    id="representations:V-13",
    claim="At the top layer a masked LM preserves token identity best, a translation encoder less, a causal LM least.",
    source=BOTTOM_UP,
    published=".976 (masked LM), .916 (translation) and .768 (causal LM) of 50 neighbours at layer 6",
    statistic=(
        "share of the 50 nearest neighbours that are the same token, top layer: masked LM over translation over "
        "causal LM, each gap above .015"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="chance", reads=baselines(READS)),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=("causal-lm", "masked-lm", "translation"),
)
